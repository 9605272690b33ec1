/* What the programs of these tests share. */
#include <stdio.h>
#include <stdlib.h>

/* Ends the program, and says where, unless the condition holds. */
#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
