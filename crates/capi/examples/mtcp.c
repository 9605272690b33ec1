/* The paper's sequence of calls: a sender and the members of a group, each a process of its own.
 *
 *   cc mtcp.c $(pkg-config --cflags --libs denrei) -o mtcp
 *   ./mtcp member 1 & ./mtcp member 2 & ./mtcp sender 2
 *
 * With -DORDINARY it makes the system's calls, needs no library, and is run with
 * LD_PRELOAD=libdenrei-mtcp.so.
 */
#include <arpa/inet.h>
#include <denrei/mtcp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef ORDINARY
#define mtcp_socket socket
#define mtcp_setsockopt setsockopt
#define mtcp_connect connect
#define mtcp_bind bind
#define mtcp_listen listen
#define mtcp_accept accept
#define mtcp_send send
#define mtcp_recv recv
#define mtcp_close close
#endif

enum { BYTES = 3000000, PATIENCE_MS = 20000 };

static void check(int ok, const char *what) {
  if (!ok) {
    perror(what);
#ifndef ORDINARY
    fprintf(stderr, "%s: %s\n", what, mtcp_error());
#endif
    exit(1);
  }
}

static unsigned char byte_at(size_t at) { return (unsigned char)(at * 31 + at / 251); }

static void wait_for(int s, const char *what) {
  struct pollfd entry = {s, POLLIN, 0};
  int ready = poll(&entry, 1, PATIENCE_MS);
  if (ready == 0) {
    fprintf(stderr, "%s: nothing for %d ms\n", what, PATIENCE_MS);
    exit(1);
  }
  check(ready == 1, what);
}

static void sender(struct sockaddr_in *group, int members) {
  int on = 1;
  int s = mtcp_socket(AF_INET, SOCK_STREAM, 0);
  check(s >= 0, "socket");
  check(mtcp_setsockopt(s, IPPROTO_TCP, MTCP_MODE, &on, sizeof on) == 0, "MTCP_MODE");
  check(mtcp_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
  for (int id = 1; id <= members; id++)
    check(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0, "SET_HOSTID");
  check(mtcp_connect(s, (struct sockaddr *)group, sizeof *group) == 0, "connect");
  static unsigned char data[BYTES];
  for (size_t at = 0; at < BYTES; at++) data[at] = byte_at(at);
  for (size_t at = 0; at < BYTES;) {
    size_t count = at < 4096 ? 16 : 4096;
    ssize_t sent = mtcp_send(s, data + at, count < BYTES - at ? count : BYTES - at, 0);
    check(sent > 0, "send");
    at += (size_t)sent;
  }
  check(mtcp_close(s) == 0, "close");
  printf("sender: all %d bytes are with all %d members\n", BYTES, members);
}

static void member(struct sockaddr_in *group, int own_id) {
  int on = 1;
  int s = mtcp_socket(AF_INET, SOCK_STREAM, 0);
  check(s >= 0, "socket");
  check(mtcp_setsockopt(s, IPPROTO_TCP, MTCP_MODE, &on, sizeof on) == 0, "MTCP_MODE");
  check(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &own_id, sizeof own_id) == 0, "SET_HOSTID");
  check(mtcp_setsockopt(s, IPPROTO_TCP, JOIN, &group->sin_addr, sizeof group->sin_addr) == 0, "JOIN");
  check(mtcp_bind(s, (struct sockaddr *)group, sizeof *group) == 0, "bind");
  check(mtcp_listen(s, 1) == 0, "listen");
  wait_for(s, "waiting for a sender");
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  int c = mtcp_accept(s, (struct sockaddr *)&from, &length);
  check(c >= 0 && from.sin_family == AF_INET && from.sin_port != 0, "accept");
  size_t at = 0;
  for (;;) {
    unsigned char data[10000];
    wait_for(c, "waiting for data");
    ssize_t count = mtcp_recv(c, data, sizeof data, 0);
    check(count >= 0, "recv");
    if (count == 0) break;
    for (ssize_t i = 0; i < count; i++) check(data[i] == byte_at(at++), "the data");
  }
  check(at == BYTES, "all of the data");
  check(mtcp_close(c) == 0, "close");
  check(mtcp_close(s) == 0, "close");
  printf("member %d: %zu bytes\n", own_id, at);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s sender MEMBERS | member ID [GROUP PORT]\n", argv[0]);
    return 2;
  }
  struct sockaddr_in group;
  memset(&group, 0, sizeof group);
  group.sin_family = AF_INET;
  inet_pton(AF_INET, argc > 3 ? argv[3] : "224.224.21.21", &group.sin_addr);
  group.sin_port = htons((uint16_t)(argc > 4 ? atoi(argv[4]) : 5000));
  if (strcmp(argv[1], "sender") == 0)
    sender(&group, atoi(argv[2]));
  else
    member(&group, atoi(argv[2]));
  return 0;
}
