/* Threads open, set up, look up and close sockets of groups without a pause, while the process forks: what a child does
 * with sockets ends, whatever a thread that it does not have was just doing. Prints "ok" at the end. */
#include "check.h"
#include <arpa/inet.h>
#include <denrei/mtcp.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, FORKS = 300 };

static int is_over;

static int adopted(int s) {
  int on = 1;
  CHECK(s >= 0 && mtcp_setsockopt(s, IPPROTO_TCP, MTCP_MODE, &on, sizeof on) == 0);
  return s;
}

static int in_mode(void) { return adopted(mtcp_socket(AF_INET, SOCK_STREAM, 0)); }

static void *open_and_close(void *unused) {
  int id = 1;
  while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
    int s = in_mode();
    CHECK(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
    CHECK(mtcp_close(s) == 0);
  }
  return unused;
}

static int kept;

/* Its own socket works; its parent's is refused, and what that leaves behind is not closed: its number is another's. */
static void child(int number) {
  int id = number, s, file;
  char byte;
  alarm(20);
  FAILS(mtcp_setsockopt(kept, IPPROTO_TCP, SET_HOSTID, &id, sizeof id), -1, "from which this one was forked");
  CHECK(mtcp_close(kept) == 0);
  CHECK(mtcp_socket(AF_INET, SOCK_STREAM, 0) == kept && (file = open("/dev/zero", O_RDONLY)) >= 0);
  s = adopted(kept);
  CHECK(mtcp_setsockopt(s, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
  CHECK(mtcp_close(s) == 0);
  CHECK(read(file, &byte, 1) == 1);
  _exit(0);
}

static int slow;

/* Nobody answers: it takes ten seconds. */
static void *connect_in_vain(void *unused) {
  struct sockaddr_in group = {0};
  group.sin_family = AF_INET;
  CHECK(inet_pton(AF_INET, "239.255.79.16", &group.sin_addr) == 1);
  group.sin_port = htons(9);
  CHECK(mtcp_connect(slow, (struct sockaddr *)&group, sizeof group) == -1 && errno == ETIMEDOUT);
  return unused;
}

static int status_of(pid_t child) {
  int status;
  CHECK(child >= 0 && waitpid(child, &status, 0) == child);
  return status;
}

/* What a thread of the parent's does to a socket never ends in the child. */
static void a_socket_that_connects(void) {
  pthread_t thread;
  int id = 1;
  char byte = 'x';
  slow = in_mode();
  CHECK(mtcp_setsockopt(slow, IPPROTO_TCP, SET_HOSTID, &id, sizeof id) == 0);
  CHECK(pthread_create(&thread, NULL, connect_in_vain, NULL) == 0);
  usleep(300000);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    FAILS(mtcp_send(slow, &byte, 1, 0), -1, "from which this one was forked");
    _exit(mtcp_close(slow));
  }
  CHECK(status_of(child) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && mtcp_close(slow) == 0);
}

int main(void) {
  pthread_t threads[THREADS];
  a_socket_that_connects();
  kept = in_mode();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, open_and_close, NULL) == 0);
  for (int i = 0; i < FORKS; i++) {
    pid_t pid = fork();
    if (pid == 0) child(i);
    CHECK(status_of(pid) == 0);
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  puts("ok");
  return 0;
}
