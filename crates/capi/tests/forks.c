/* What a process has opened is its own: in a child that it forks, calls are refused and what frees does nothing, the
 * child opens a node of its own, and the parent goes on. Prints "ok" at the end. */
#include "check.h"
#include <denrei/suci.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000LL
#define FORKED "from which this one was forked"

static denrei_node *from, *to;
static denrei_peer peer;
static denrei_group *group;
static denrei_group_listener *listener;
static denrei_membership *membership;
static denrei_relay *relay;
static datagram_socket *sock;
static int released;

static void release(void *context) { (*(int *)context)++; }

static denrei_node *opened(const char *address) {
  denrei_config *config = denrei_config_new();
  denrei_node *node = NULL;
  OK(denrei_config_set(config, "drive", "thread"));
  OK(denrei_node_open(address, config, &node));
  denrei_config_free(config);
  return node;
}

static void *accept_one(void *unused) {
  OK(denrei_group_accept(listener, 20 * SECOND, &membership));
  return unused;
}

static void open_all(const char *address) {
  char text[64];
  const char *member = text, *any = "127.0.0.1:0";
  datagram_addrdb *addresses = datagram_addrdb_new();
  pthread_t thread;
  from = opened(any);
  to = opened(any);
  OK(denrei_node_address(to, text, sizeof text));
  OK(denrei_connect(from, text, &peer));
  OK(denrei_group_join(to, address, &listener));
  CHECK(pthread_create(&thread, NULL, accept_one, NULL) == 0);
  OK(denrei_group_open(from, address, &member, 1, NULL, &group));
  CHECK(pthread_join(thread, NULL) == 0);
  OK(denrei_relay_start(&any, &member, 1, NULL, NULL, &relay));
  CHECK(datagram_addrdb_add(addresses, 1, "127.0.0.1", 9) == 0);
  CHECK((sock = datagram(addresses, "127.0.0.1", 0, 2)) != NULL);
  datagram_addrdb_free(addresses);
}

static void calls_are_refused(void) {
  denrei_message *message = NULL;
  denrei_event *event = NULL;
  char text[64];
  size_t count;
  FAILS(denrei_send(from, peer, 0, "forged", 6), DENREI_INVALID, FORKED);
  FAILS(denrei_send_lent(from, peer, 0, "forged", 6, release, &released, 0, 0, NULL), DENREI_INVALID, FORKED);
  CHECK(released == 1);
  FAILS(denrei_recv(to, -1, &message), DENREI_INVALID, FORKED);
  FAILS(denrei_event_next(to, -1, &event), DENREI_INVALID, FORKED);
  FAILS(denrei_node_poll(from), DENREI_INVALID, FORKED);
  CHECK(denrei_node_fd(from) == -1);
  FAILS(denrei_group_send(group, "forged", 6, -1, NULL), DENREI_INVALID, FORKED);
  FAILS(denrei_group_close(group, SECOND), DENREI_INVALID, FORKED);
  FAILS(denrei_group_listener_address(listener, text, sizeof text), DENREI_INVALID, FORKED);
  FAILS(denrei_membership_recv(membership, -1, &message), DENREI_INVALID, FORKED);
  FAILS(denrei_relay_pairs(relay, NULL, 0, &count), DENREI_INVALID, FORKED);
  CHECK(datagram_set_destination(sock, 1) < 0 && strstr(denrei_error_message(), FORKED) != NULL);
}

static void free_all(void) {
  datagram_close(sock);
  denrei_relay_free(relay);
  denrei_group_free(group);
  denrei_membership_leave(membership);
  denrei_group_listener_free(listener);
  denrei_node_free(from);
  denrei_node_free(to);
}

/* The message that the child's own node sends to the parent's. */
static void speak_for_oneself(const char *to_whom) {
  denrei_node *own = opened("127.0.0.1:0");
  denrei_peer parent;
  OK(denrei_connect(own, to_whom, &parent));
  OK(denrei_send(own, parent, 0, "from the child", 14));
  OK(denrei_flush(own, parent, 20 * SECOND));
  denrei_node_free(own);
}

static void expect(const char *words) {
  denrei_message *message = NULL;
  OK(denrei_recv(to, 20 * SECOND, &message));
  CHECK(denrei_message_length(message) == strlen(words));
  CHECK(memcmp(denrei_message_data(message), words, strlen(words)) == 0);
  denrei_message_free(message);
}

static void the_parent_goes_on(void) {
  denrei_message *message = NULL;
  expect("from the child");
  OK(denrei_send(from, peer, 0, "genuine", 7));
  expect("genuine");
  OK(denrei_group_send(group, "to all", 6, 20 * SECOND, NULL));
  OK(denrei_membership_recv(membership, 20 * SECOND, &message));
  CHECK(denrei_message_number(message) == 0);
  denrei_message_free(message);
}

static void a_node_stays_open_for_its_groups(const char *address) {
  denrei_node *again = NULL;
  denrei_node_free(to);
  FAILS(denrei_node_open(address, NULL, &again), DENREI_SYSTEM, "in use");
  to = NULL;
  free_all();
  OK(denrei_node_open(address, NULL, &again));
  denrei_node_free(again);
}

int main(int count, char **arguments) {
  char address[64];
  int status;
  pid_t child;
  CHECK(count == 2);
  open_all(arguments[1]);
  OK(denrei_node_address(to, address, sizeof address));
  OK(denrei_send(from, peer, 0, "before", 6));
  expect("before");
#ifdef __SANITIZE_ADDRESS__
  /* In a child the sanitizer's allocator waits for ever for a lock that a thread of the parent's had. */
  usleep(200 * 1000);
#endif
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60);
    calls_are_refused();
    free_all();
    speak_for_oneself(address);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  the_parent_goes_on();
  a_node_stays_open_for_its_groups(address);
  puts("ok");
  return 0;
}
