/* What the C tests say when something is not as it has to be. */
#ifndef CHECK_H
#define CHECK_H

#include <denrei/denrei.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s\n  last message: %s\n", __FILE__, __LINE__, #condition,      \
              denrei_error_message());                                                        \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#define OK(call) CHECK((call) == DENREI_OK)

/* The call fails with this code, and the message has this in it. */
#define FAILS(call, code, text)                                                               \
  do {                                                                                        \
    CHECK((call) == (code));                                                                  \
    CHECK(strstr(denrei_error_message(), (text)) != NULL);                                    \
  } while (0)

#endif
