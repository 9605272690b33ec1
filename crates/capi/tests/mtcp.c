/* Calls of mtcp.h out of order and with wrong arguments, and members that are lost; sender and members
 * in one process. Prints "ok" at the end. Arguments: a group's address and port. */
#include <arpa/inet.h>
#include <denrei/mtcp.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "%s:%d: %s\n  errno %d, last message: %s\n", __FILE__, __LINE__, #condition, errno, \
              mtcp_error());                                                                         \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)

#define FAILS(call, number, text)                                                                    \
  do {                                                                                               \
    CHECK((call) == -1 && errno == (number));                                                        \
    CHECK(strstr(mtcp_error(), (text)) != NULL);                                                     \
  } while (0)

static struct sockaddr_in group;
static const struct sockaddr *name = (const struct sockaddr *)&group;

static int in_mode(void) {
  int on = 1, s = mtcp_socket(AF_INET, SOCK_STREAM, 0);
  CHECK(s >= 0 && mtcp_in_mode(s) == 0);
  CHECK(mtcp_setsockopt(s, IPPROTO_TCP, MTCP_MODE, &on, sizeof on) == 0);
  CHECK(mtcp_in_mode(s) == 1);
  return s;
}

static int identified(int id) {
  int s = in_mode();
  CHECK(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
  return s;
}

static int listening(int id) {
  int s = identified(id);
  CHECK(mtcp_setsockopt(s, IPPROTO_TCP, JOIN, &group.sin_addr, sizeof group.sin_addr) == 0);
  CHECK(mtcp_bind(s, name, sizeof group) == 0);
  CHECK(mtcp_listen(s, 5) == 0);
  return s;
}

static int accepted(int s) {
  struct pollfd entry = {s, POLLIN, 0};
  CHECK(poll(&entry, 1, 20000) == 1);
  int c = mtcp_accept(s, NULL, NULL);
  CHECK(c >= 0 && mtcp_in_mode(c) == 1);
  return c;
}

/* What cannot be in this mode stays what it is. */
static void descriptors_of_others(void) {
  int pair[2], ends[2], datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && datagrams >= 0);
  FAILS(mtcp_setsockopt(ends[0], IPPROTO_TCP, MTCP_MODE, NULL, 0), ENOTSOCK, "socket");
  FAILS(mtcp_setsockopt(datagrams, IPPROTO_TCP, MTCP_MODE, NULL, 0), EPROTOTYPE, "no stream socket");
  FAILS(mtcp_setsockopt(pair[0], IPPROTO_TCP, MTCP_MODE, NULL, 0), EISCONN, "connected already");
  FAILS(mtcp_setsockopt(-1, IPPROTO_TCP, MTCP_MODE, NULL, 0), EBADF, "descriptor");
  CHECK(mtcp_in_mode(ends[0]) == 0 && mtcp_in_mode(datagrams) == 0 && mtcp_in_mode(pair[0]) == 0);
  char byte = 'x';
  CHECK(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1);
  CHECK(write(pair[1], &byte, 1) == 1 && read(pair[0], &byte, 1) == 1);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(datagrams) == 0);
  CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void out_of_order(void) {
  char byte = 'x';
  int id = -1;
  struct sockaddr_in unicast = group;
  unicast.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int plain = mtcp_socket(AF_INET, SOCK_STREAM, 0);
  FAILS(mtcp_connect(plain, name, sizeof group), ENOTSOCK, "MTCP_MODE");
  CHECK(mtcp_close(plain) == 0);
  CHECK(mtcp_close(-1) == -1 && errno == EBADF);
  CHECK(mtcp_in_mode(-1) == 0 && mtcp_in_mode(1 << 20) == 0);

  int s = in_mode();
  FAILS(mtcp_connect(s, name, sizeof group), EDESTADDRREQ, "SET_HOSTID");
  FAILS(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id), EINVAL, "negative");
  FAILS(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &byte, 1), EINVAL, "int");
  FAILS(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, NULL, 4), EFAULT, "NULL");
  FAILS(mtcp_setsockopt(s, IPPROTO_TCP, JOIN, &unicast.sin_addr, 4), EINVAL, "class D");
  FAILS(mtcp_bind(s, name, sizeof group), EADDRNOTAVAIL, "JOIN");
  FAILS(mtcp_connect(s, (struct sockaddr *)&unicast, sizeof unicast), EINVAL, "class D");
  FAILS(mtcp_listen(s, 1), EDESTADDRREQ, "bind");
  FAILS(mtcp_accept(s, NULL, NULL), EINVAL, "listen");
  FAILS(mtcp_send(s, &byte, 1, 0), ENOTCONN, "connect");
  FAILS(mtcp_recv(s, &byte, 1, 0), ENOTCONN, "accept");
  int size = 65536;
  CHECK(mtcp_setsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
  id = 7;
  CHECK(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
  FAILS(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id), EINVAL, "already");
  CHECK(mtcp_close(s) == 0 && mtcp_in_mode(s) == 0);
}

/* An ordinary program sees the numbers alone. */
static void what_the_environment_says(void) {
  int s = identified(1);
  CHECK(setenv("MTCP_INTERFACE", "192.0.2.7", 1) == 0);
  FAILS(mtcp_connect(s, name, sizeof group), EACCES, "without a cluster key");
  CHECK(mtcp_close(s) == 0);
  s = identified(1);
  CHECK(setenv("MTCP_INTERFACE", "::1", 1) == 0);
  FAILS(mtcp_connect(s, name, sizeof group), EINVAL, "no IPv4 address");
  CHECK(unsetenv("MTCP_INTERFACE") == 0 && mtcp_close(s) == 0);
  s = identified(1);
  CHECK(setenv("MTCP_HOSTS", "1=[::1]:7500", 1) == 0);
  FAILS(mtcp_connect(s, name, sizeof group), EINVAL, "192.0.2.7:7500");
  CHECK(unsetenv("MTCP_HOSTS") == 0 && mtcp_close(s) == 0);
}

static void a_connection_ends_in_order(void) {
  int member = listening(1), s = identified(1);
  CHECK(fcntl(member, F_SETFL, O_NONBLOCK) == 0);
  CHECK(mtcp_accept(member, NULL, NULL) == -1 && errno == EAGAIN);
  CHECK(mtcp_connect(s, name, sizeof group) == 0);
  CHECK(mtcp_connect(s, name, sizeof group) == -1 && errno == EISCONN);
  int c = accepted(member);
  char text[8];
  CHECK(mtcp_send(s, "march", 5, 0) == 5);
  CHECK(mtcp_recv(c, text, 5, MSG_WAITALL) == 5 && memcmp(text, "march", 5) == 0);
  FAILS(mtcp_send(c, "no", 2, 0), EOPNOTSUPP, "members");
  FAILS(mtcp_recv(s, text, 1, MSG_DONTWAIT), EOPNOTSUPP, "members");
  CHECK(mtcp_recv(c, text, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK(mtcp_send(s, "halt", 4, 0) == 4);
  CHECK(mtcp_close(s) == 0);
  CHECK(mtcp_recv(c, text, 4, MSG_WAITALL) == 4 && memcmp(text, "halt", 4) == 0);
  CHECK(mtcp_recv(c, text, 1, 0) == 0);
  CHECK(mtcp_close(c) == 0 && mtcp_close(member) == 0);
}

/* One of two members goes away: the sender is told, and the other is reset. */
static void a_member_goes_away(void) {
  int first = listening(1), second = listening(2), s = identified(1), id = 2;
  CHECK(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
  CHECK(mtcp_connect(s, name, sizeof group) == 0);
  int c1 = accepted(first), c2 = accepted(second);
  CHECK(mtcp_send(s, "x", 1, 0) == 1);
  char text[8];
  CHECK(mtcp_recv(c1, text, 1, 0) == 1 && mtcp_recv(c2, text, 1, 0) == 1);
  CHECK(mtcp_close(c2) == 0);
  struct pollfd entry = {s, 0, 0};
  CHECK(poll(&entry, 1, 20000) == 1 && (entry.revents & POLLHUP) != 0);
  FAILS(mtcp_send(s, "y", 1, 0), ECONNRESET, "gone");
  FAILS(mtcp_close(s), ECONNRESET, "gone");
  CHECK(mtcp_recv(c1, text, 1, 0) == -1 && errno == ECONNRESET);
  CHECK(mtcp_close(c1) == 0 && mtcp_close(first) == 0 && mtcp_close(second) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  group.sin_family = AF_INET;
  CHECK(inet_pton(AF_INET, argv[1], &group.sin_addr) == 1);
  group.sin_port = htons((uint16_t)atoi(argv[2]));
  descriptors_of_others();
  out_of_order();
  what_the_environment_says();
  a_connection_ends_in_order();
  a_member_goes_away();
  puts("ok");
  return 0;
}
