/* The paper's program loop, its placeholders filled in: two processes exchange numbered blocks,
 * compute in between, and look after their queues themselves.
 *
 *   cc suci.c $(pkg-config --cflags --libs denrei) -o suci && ./suci
 */
#include <denrei/suci.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEC = 0, USEC = 2000, BLOCKS = 200, SIZE = 3000 };

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, datagram_error());
  exit(1);
}

static int run(datagram_addrdb *addrdb, int port, int myid, int id1) {
  datagram_socket *sock = datagram(addrdb, "127.0.0.1", port, myid);
  if (sock == NULL) fail("datagram");
  int id2 = id1;
  int sent = 0, received = 0, patience = 20000;
  unsigned work = 0;
  static char buf[SIZE];
  while ((sent < BLOCKS || received < BLOCKS || datagram_queue_length(sock, id1) > 0) && patience-- > 0) {
    for (int i = 0; i < 1000; i++) work = work * 31 + (unsigned)i; /* the computation */
    if (datagram_ready(sock, SEC, received < BLOCKS ? USEC : 0)) {
      int size = datagram_read0(sock, buf, SIZE);
      if (size < (int)sizeof received || memcmp(buf, &received, sizeof received) != 0) fail("a block");
      if (datagram_source(sock) != id1) fail("the source");
      received++;
    } else if (sent < BLOCKS) {
      datagram_destination(sock, id1);
      if (datagram_wait(sock, SEC, USEC, SIZE, id1)) {
        memset(buf, sent, SIZE);
        memcpy(buf, &sent, sizeof sent);
        if (datagram_write0(sock, buf, (int)sizeof sent + sent * 13 % (SIZE - 4)) < 0) fail("datagram_write0");
        sent++;
      }
      if (datagram_queue_length(sock, id2) > 100) datagram_retransmission(sock, id2);
    }
  }
  datagram_flow_state flow = {0, 0, 0, 0, 0, 0};
  datagram_flow(sock, id1, &flow); /* no session is left if the other was faster */
  printf("%d: %d blocks sent, %d received, round trip %llu us, %llu lost (%u)\n", myid, sent, received,
         (unsigned long long)flow.delay_us, (unsigned long long)datagram_lost(sock, id1), work % 10);
  datagram_close(sock);
  return sent == BLOCKS && received == BLOCKS ? 0 : 1;
}

int main(int argc, char **argv) {
  int port = argc > 1 ? atoi(argv[1]) : 17411;
  datagram_addrdb *addrdb = datagram_addrdb_new();
  if (datagram_addrdb_add(addrdb, 1, "127.0.0.1", port) != 0) fail("datagram_addrdb_add");
  if (datagram_addrdb_add(addrdb, 2, "127.0.0.1", port + 1) != 0) fail("datagram_addrdb_add");
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) exit(run(addrdb, port + 1, 2, 1));
  int mine = run(addrdb, port, 1, 2), status = 1;
  waitpid(child, &status, 0);
  datagram_addrdb_free(addrdb);
  return mine != 0 || status != 0;
}
