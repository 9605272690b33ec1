/* Lengths that no memory has, in every call that takes one: the call fails, and the program goes on. Prints "ok" at the
 * end. Argument: a group's address. */
#include "check.h"
#include <denrei/denrei.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define SECOND 1000000LL
/* More than the receiver takes, and more than there is memory for; the last is the largest of an object. */
static const size_t LENGTHS[] = {(size_t)1 << 46, SIZE_MAX / 4, SIZE_MAX / 2};

static int released;

static void release(void *context) {
  CHECK(context == &released);
  released++;
}

static denrei_node *open_node(void) {
  denrei_config *config = denrei_config_new();
  OK(denrei_config_set(config, "drive", "thread"));
  OK(denrei_config_set(config, "max_message_bytes", "2MiB"));
  denrei_node *node = NULL;
  OK(denrei_node_open("127.0.0.1:0", config, &node));
  denrei_config_free(config);
  return node;
}

/* Nothing is known of the receiver yet: that there is no memory for the copy is all that can be said. */
static void before_an_answer(denrei_node *node) {
  denrei_peer peer = DENREI_NO_PEER;
  OK(denrei_connect(node, "127.0.0.1:9", &peer));
  for (size_t i = 0; i < 3; i++) {
    FAILS(denrei_send(node, peer, 0, "x", LENGTHS[i]), DENREI_SYSTEM, "no memory for a copy of");
    FAILS(denrei_queue(node, peer, 0, "x", LENGTHS[i], 0, NULL), DENREI_SYSTEM, "no memory");
  }
  FAILS(denrei_send(node, 77, 0, "x", LENGTHS[0]), DENREI_UNKNOWN_PEER, "77");
  FAILS(denrei_send(node, peer, 60000, "x", LENGTHS[0]), DENREI_NO_CHANNEL, "60000");
  OK(denrei_abort(node, peer, 0x8000, "enough"));
}

/* The copy would be too large for the receiver: what is behind the length is not looked at. */
static void beyond_the_limit(denrei_node *a, denrei_node *b) {
  char address[64];
  denrei_peer peer = DENREI_NO_PEER;
  OK(denrei_node_address(b, address, sizeof address));
  OK(denrei_connect(a, address, &peer));
  OK(denrei_send(a, peer, 0, "x", 1));
  OK(denrei_flush(a, peer, 5 * SECOND));
  size_t lengths[] = {(2 << 20) + 1, UINT_MAX, LENGTHS[0], LENGTHS[1], LENGTHS[2]};
  for (size_t i = 0; i < 5; i++) {
    size_t length = lengths[i];
    FAILS(denrei_send(a, peer, 0, "x", length), DENREI_TOO_LARGE, "limit of 2097152");
    FAILS(denrei_send_with(a, peer, 0, "x", length, 0, 0, NULL), DENREI_TOO_LARGE, "limit");
    FAILS(denrei_send_within(a, peer, 0, "x", length, 0, 1000, NULL), DENREI_TOO_LARGE, "limit");
    FAILS(denrei_queue(a, peer, 0, "x", length, 0, NULL), DENREI_TOO_LARGE, "limit");
    FAILS(denrei_send_lent(a, peer, 0, "x", length, release, &released, 0, 0, NULL), DENREI_TOO_LARGE, "limit");
    FAILS(denrei_queue_lent(a, peer, 0, "x", length, release, &released, 0, NULL), DENREI_TOO_LARGE, "limit");
  }
  CHECK(released == 10);
  OK(denrei_send(a, peer, 0, "y", 1));
  OK(denrei_flush(a, peer, 5 * SECOND));
}

static denrei_group_listener *listener;

static void *take_part(void *unused) {
  denrei_membership *membership = NULL;
  OK(denrei_group_accept(listener, 10 * SECOND, &membership));
  return unused == NULL ? membership : NULL;
}

static void to_a_group(denrei_node *a, denrei_node *b, const char *at) {
  char address[64];
  OK(denrei_node_address(b, address, sizeof address));
  OK(denrei_group_join(b, at, &listener));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, take_part, NULL) == 0);
  const char *members[] = {address};
  denrei_group *group = NULL;
  OK(denrei_group_open(a, at, members, 1, NULL, &group));
  void *membership = NULL;
  CHECK(pthread_join(thread, &membership) == 0);
  size_t lengths[] = {(2 << 20) + 1, UINT_MAX, LENGTHS[0], LENGTHS[1], LENGTHS[2]};
  for (size_t i = 0; i < 5; i++) FAILS(denrei_group_send(group, "x", lengths[i], 0, NULL), DENREI_TOO_LARGE, "2097152");
  OK(denrei_group_send(group, "x", 1, SECOND, NULL));
  OK(denrei_group_close(group, 5 * SECOND));
  FAILS(denrei_group_send(group, "x", LENGTHS[0], 0, NULL), DENREI_CLOSED, "group");
  denrei_group_free(group);
  denrei_membership_leave((denrei_membership *)membership);
  denrei_group_listener_free(listener);
}

static void join(void *context, void *accumulated, const void *next, size_t length) {
  CHECK(context != NULL && accumulated != NULL && next != NULL && length > 0);
}

static void in_a_set(denrei_node *a, const char *at) {
  char address[64];
  OK(denrei_node_address(a, address, sizeof address));
  const char *addresses[] = {address};
  denrei_collective *set = NULL;
  OK(denrei_collective_open(a, addresses, 1, at, SECOND, &set));
  denrei_message *message = NULL;
  denrei_parts *parts = NULL;
  for (size_t i = 0; i < 3; i++) {
    size_t length = LENGTHS[i];
    FAILS(denrei_collective_broadcast(set, "x", length, SECOND, &message), DENREI_SYSTEM, "no memory");
    FAILS(denrei_collective_gather(set, "x", length, SECOND, &parts), DENREI_SYSTEM, "no memory");
    FAILS(denrei_collective_all_gather(set, "x", length, SECOND, &parts), DENREI_SYSTEM, "no memory");
    FAILS(denrei_collective_reduce(set, "x", length, join, &set, SECOND, &message), DENREI_SYSTEM, "no memory");
  }
  OK(denrei_collective_gather(set, "x", 1, SECOND, &parts));
  denrei_parts_free(parts);
  OK(denrei_collective_close(set, SECOND));
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  denrei_node *a = open_node(), *b = open_node();
  before_an_answer(a);
  beyond_the_limit(a, b);
  to_a_group(a, b, arguments[1]);
  in_a_set(a, arguments[1]);
  denrei_node_free(a);
  denrei_node_free(b);
  puts("ok");
  return 0;
}
