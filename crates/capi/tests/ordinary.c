/* What an ordinary program does with descriptors of groups under the preloaded library: the kernel's options, fork, a
 * stream of stdio; sender and member in one process. Prints "ok" at the end. Arguments: a group's address and port. */
#include <arpa/inet.h>
#include <denrei/mtcp.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s\n  errno %d\n", __FILE__, __LINE__, #condition, errno);    \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

static struct sockaddr_in group;
static const struct sockaddr *name = (const struct sockaddr *)&group;

static int in_mode(int id) {
  int on = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(s >= 0 && setsockopt(s, IPPROTO_TCP, MTCP_MODE, &on, sizeof on) == 0);
  CHECK(setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
  return s;
}

/* A connection of one member: the sender's end, the member's, and where that listens. */
static void open_connection(int *sender, int *member, int *listening) {
  int on = 1, l = in_mode(1), s = in_mode(1);
  CHECK(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  CHECK(setsockopt(l, IPPROTO_TCP, JOIN, &group.sin_addr, sizeof group.sin_addr) == 0);
  CHECK(bind(l, name, sizeof group) == 0 && listen(l, 1) == 0);
  CHECK(connect(s, name, sizeof group) == 0);
  struct pollfd entry = {l, POLLIN, 0};
  CHECK(poll(&entry, 1, 20000) == 1);
  *sender = s;
  *listening = l;
  *member = accept(l, NULL, NULL);
  CHECK(*member >= 0);
}

static void options_are_the_kernels(int member) {
  struct timeval limit = {0, 50000}, found = {0, 0};
  socklen_t length = sizeof found;
  char byte;
  CHECK(setsockopt(member, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  CHECK(getsockopt(member, SOL_SOCKET, SO_RCVTIMEO, &found, &length) == 0 && found.tv_usec > 0);
  CHECK(recv(member, &byte, 1, 0) == -1 && errno == EAGAIN);
  limit.tv_sec = 20;
  CHECK(setsockopt(member, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
}

/* Servers log who is there, and languages make an object of a descriptor: these are no names of a Unix socket. */
static void ends_have_names(int sender, int member, int listening) {
  struct sockaddr_in own = {0}, peer = {0}, found = {0};
  socklen_t length = sizeof own;
  CHECK(getsockname(sender, (struct sockaddr *)&own, &length) == 0 && length == sizeof own);
  CHECK(own.sin_family == AF_INET && own.sin_port != 0);
  CHECK(getpeername(member, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET);
  CHECK(peer.sin_port == own.sin_port && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  for (int at = 0; at < 3; at++) {
    memset(&found, 0, sizeof found);
    CHECK((at == 0 ? getpeername(sender, (struct sockaddr *)&found, &length)
                   : getsockname(at == 1 ? member : listening, (struct sockaddr *)&found, &length)) == 0);
    CHECK(found.sin_port == group.sin_port && found.sin_addr.s_addr == group.sin_addr.s_addr);
  }
  CHECK(getpeername(listening, (struct sockaddr *)&found, &length) == -1 && errno == ENOTCONN);
  CHECK(getsockname(member, NULL, NULL) == -1 && errno == EFAULT);
  int value = -1;
  length = sizeof value;
  CHECK(getsockopt(member, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_INET);
  CHECK(getsockopt(member, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == IPPROTO_TCP);
  CHECK(getsockopt(sender, IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0 && value == 1);
  CHECK(getsockopt(sender, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_STREAM);
}

/* It is a byte of the stream like any other; kernels before 5.15 refuse it. */
static void an_urgent_byte_comes_in_its_place(int sender, int member) {
  char text[4];
  CHECK(send(sender, "a", 1, 0) == 1);
  if (send(sender, "b", 1, MSG_OOB) != 1) {
    CHECK(errno == EOPNOTSUPP && send(sender, "b", 1, 0) == 1);
  }
  CHECK(send(sender, "c", 1, 0) == 1);
  CHECK(recv(member, text, 3, MSG_WAITALL) == 3 && memcmp(text, "abc", 3) == 0);
}

/* As programs do that start others: what the child closes goes on at its parent's. */
static void a_child_closes_its_own(int sender, int member) {
  char text[8];
  CHECK(send(sender, "march", 5, 0) == 5);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(10);
    _exit(close(sender) == 0 && close(member) == 0 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(send(sender, "halt", 4, MSG_NOSIGNAL) == 4);
  CHECK(recv(member, text, 8, MSG_WAITALL) == 8 && memcmp(text, "marchhal", 8) == 0);
  CHECK(close(sender) == 0);
  CHECK(recv(member, text, 8, MSG_WAITALL) == 1 && text[0] == 't' && close(member) == 0);
}

/* A child that lives on keeps nobody from learning of the end, or of a member that is lost. */
static void a_child_lives_on(int is_lost) {
  int sender, member, listening, status;
  open_connection(&sender, &member, &listening);
  options_are_the_kernels(member);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(member);
    sleep(60);
    _exit(0);
  }
  char byte;
  CHECK(close(is_lost ? member : sender) == 0);
  struct pollfd entry = {sender, 0, 0};
  if (is_lost)
    CHECK(poll(&entry, 1, 20000) == 1 && (entry.revents & POLLHUP) != 0);
  else
    CHECK(recv(member, &byte, 1, 0) == 0);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
  if (is_lost)
    CHECK(close(sender) == -1 && errno == ECONNRESET);
  else
    CHECK(close(member) == 0);
  CHECK(close(listening) == 0);
}

/* A descriptor that fclose has given back is another's then, and the kernel's. */
static void what_comes_after_a_stream_is_the_kernels(void) {
  int on = 1, was = in_mode(1), listening = socket(AF_INET, SOCK_STREAM, 0);
  FILE *stream = fdopen(was, "r+");
  CHECK(stream != NULL && fclose(stream) == 0);
  int s = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(s == was && setsockopt(s, IPPROTO_TCP, MTCP_MODE, &on, sizeof on) == 0 && close(s) == 0);
  s = in_mode(1);
  CHECK(s == was && (stream = fdopen(s, "r+")) != NULL && fclose(stream) == 0);
  s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {0};
  socklen_t length = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(listening, 1) == 0);
  CHECK(getsockname(listening, (struct sockaddr *)&address, &length) == 0);
  CHECK(s == was && connect(s, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(close(s) == 0 && close(listening) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  group.sin_family = AF_INET;
  CHECK(inet_pton(AF_INET, argv[1], &group.sin_addr) == 1);
  group.sin_port = htons((uint16_t)atoi(argv[2]));
  int sender, member, listening;
  open_connection(&sender, &member, &listening);
  options_are_the_kernels(member);
  ends_have_names(sender, member, listening);
  an_urgent_byte_comes_in_its_place(sender, member);
  a_child_closes_its_own(sender, member);
  CHECK(close(listening) == 0);
  a_child_lives_on(0);
  a_child_lives_on(1);
  what_comes_after_a_stream_is_the_kernels();
  puts("ok");
  return 0;
}
