/* One socket of Suci's in several threads: who waits for a block hears of it, though another takes it from the node and
 * leaves it. Prints "ok" at the end. Argument: a port, free as the next is. */
#include <denrei/suci.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                                               \
  do {                                                                                                 \
    if (!(condition)) {                                                                                \
      fprintf(stderr, "%s:%d: %s\n  %s\n", __FILE__, __LINE__, #condition, datagram_error());          \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)

enum { THREADS = 4, ROUNDS = 10 };

static datagram_socket *reader;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *await(void *size) {
  *(int *)size = datagram_ready(reader, 20, 0);
  return NULL;
}

static void *take(void *size) {
  char block[64];
  *(int *)size = datagram_read(reader, block, sizeof block);
  return NULL;
}

static void start(pthread_t *threads, void *(*work)(void *), int *sizes) {
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, &sizes[i]) == 0);
  struct timespec moment = {0, 50000000};
  nanosleep(&moment, NULL);
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  int port = atoi(arguments[1]);
  datagram_addrdb *database = datagram_addrdb_new();
  CHECK(datagram_addrdb_add(database, 1, "127.0.0.1", port) == 0);
  CHECK(datagram_addrdb_add(database, 2, "127.0.0.1", port + 1) == 0);
  datagram_socket *writer = datagram(database, "127.0.0.1", port, 1);
  reader = datagram(database, "127.0.0.1", port + 1, 2);
  CHECK(writer != NULL && reader != NULL && datagram_set_destination(writer, 2) == 0);
  CHECK(datagram_set_destination(writer, 1) == -1 && errno == ENOENT && strstr(datagram_error(), "own"));
  CHECK(datagram_set_destination(writer, 3) == -1 && errno == ENOENT && strstr(datagram_error(), "database"));
  char block[64];
  pthread_t threads[THREADS];
  int sizes[THREADS];
  int64_t began = now_ms();
  for (int round = 0; round < ROUNDS; round++) {
    /* One takes it from the node, and all see it. */
    start(threads, await, sizes);
    CHECK(datagram_write(writer, "a block", 7) == 7);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0 && sizes[i] == 7);
    /* One that is too large for a buffer stays, and none of those that have room misses theirs. */
    CHECK(datagram_read(reader, block, 3) == -1 && errno == EMSGSIZE);
    CHECK(datagram_read(reader, block, sizeof block) == 7 && datagram_source(reader) == 1);
    start(threads, take, sizes);
    for (int i = 0; i < THREADS; i++) {
      CHECK(datagram_write(writer, "a block", 7) == 7);
      int size = datagram_ready(reader, 0, 1000);
      CHECK(size == 7 || size == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0 && sizes[i] == 7);
    CHECK(datagram_read0(reader, block, sizeof block) == 0);
  }
  CHECK(now_ms() - began < 15000);
  datagram_close(writer);
  datagram_close(reader);
  datagram_addrdb_free(database);
  puts("ok");
  return 0;
}
