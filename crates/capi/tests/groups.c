/* Every call about groups and collective operations, used rightly and wrongly. Prints "ok" at the
 * end. The first argument is a multicast address that nobody else uses. */
#include "check.h"
#include <denrei/denrei.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000LL
#define COUNT 3

static int released;

static void release(void *context) {
  CHECK(context == &released);
  __atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
}

static denrei_node *open_node(char *name, size_t room) {
  denrei_config *config = denrei_config_new();
  OK(denrei_config_set(config, "drive", "thread"));
  denrei_node *node = NULL;
  OK(denrei_node_open("127.0.0.1:0", config, &node));
  OK(denrei_node_address(node, name, room));
  denrei_config_free(config);
  return node;
}

static void options_are_checked(void) {
  denrei_group_options *options = denrei_group_options_new();
  FAILS(denrei_group_options_set(options, "speed", "1"), DENREI_CONFIG, "policy");
  FAILS(denrei_group_options_set(options, "policy", "hope"), DENREI_CONFIG, "eject");
  FAILS(denrei_group_options_set(options, "policy", "eject:0s"), DENREI_CONFIG, "10ms to 1440min");
  FAILS(denrei_group_options_set(NULL, "policy", "wait"), DENREI_INVALID, "NULL");
  CHECK(strcmp(denrei_group_option_name(0), "policy") == 0);
  CHECK(denrei_group_option_name(1000) == NULL);
  denrei_group_options_free(options);
  denrei_group_options_free(NULL);
}

static void receive(denrei_membership *membership, const char *data, size_t length, uint64_t number) {
  denrei_message *message = NULL;
  OK(denrei_membership_recv(membership, 10 * SECOND, &message));
  CHECK(denrei_message_length(message) == length && denrei_message_number(message) == number);
  CHECK(memcmp(denrei_message_data(message), data, length) == 0);
  CHECK(denrei_message_peer(message) == DENREI_NO_PEER);
  denrei_message_free(message);
}

/* The next event of a kind; others are passed over. */
static void expect(denrei_group *group, denrei_group_event_kind kind, denrei_group_event *event) {
  for (int i = 0; i < 20; i++) {
    OK(denrei_group_event_next(group, 10 * SECOND, event));
    if (event->kind == kind) return;
  }
  CHECK(!"the event has come");
}

static void groups(const char *address) {
  char names[COUNT][64], opener_name[64], text[64];
  const char *members[COUNT];
  denrei_node *nodes[COUNT], *opener = open_node(opener_name, sizeof opener_name);
  denrei_group_listener *listeners[COUNT];
  denrei_membership *memberships[COUNT];
  for (int i = 0; i < COUNT; i++) {
    nodes[i] = open_node(names[i], sizeof names[i]);
    OK(denrei_group_join(nodes[i], address, &listeners[i]));
    members[i] = names[i];
  }
  CHECK(denrei_group_listener_is_heard(listeners[0]) && !denrei_group_listener_is_heard(NULL));
  denrei_group *group = NULL;
  FAILS(denrei_group_join(nodes[0], "127.0.0.1:7", &listeners[0]), DENREI_INVALID, "multicast");
  FAILS(denrei_group_open(opener, address, members, 0, NULL, &group), DENREI_INVALID, "members");
  FAILS(denrei_group_open(opener, address, NULL, 2, NULL, &group), DENREI_INVALID, "members");
  FAILS(denrei_group_open(opener, address, members, (size_t)-1, NULL, &group), DENREI_INVALID, "as many");
  denrei_group_options *options = denrei_group_options_new();
  OK(denrei_group_options_set(options, "open_timeout", "200ms"));
  const char *nobody[1] = {"127.0.0.1:9"};
  FAILS(denrei_group_open(opener, address, nobody, 1, options, &group), DENREI_TIMEOUT, "127.0.0.1:9");
  CHECK(group == NULL);
  OK(denrei_group_options_set(options, "open_timeout", "10s"));
  OK(denrei_group_options_set(options, "history_bytes", "1MiB"));

  /* Two are members from the beginning, the third comes later. */
  OK(denrei_group_open(opener, address, members, 2, options, &group));
  denrei_group_options_free(options);
  CHECK(denrei_group_id(group) != 0 && denrei_group_id(NULL) == 0);
  OK(denrei_group_address(group, text, sizeof text));
  CHECK(strcmp(text, address) == 0);
  for (int i = 0; i < 2; i++) {
    OK(denrei_group_accept(listeners[i], 10 * SECOND, &memberships[i]));
    CHECK(denrei_membership_group(memberships[i]) == denrei_group_id(group));
    OK(denrei_membership_opener(memberships[i], text, sizeof text));
    CHECK(strcmp(text, opener_name) == 0);
  }
  CHECK(denrei_membership_member(memberships[0]) != denrei_membership_member(memberships[1]));
  CHECK(denrei_group_accept(listeners[0], 0, &memberships[0]) == DENREI_TIMEOUT);

  uint64_t number = 99;
  OK(denrei_group_send(group, "first", 5, -1, &number));
  CHECK(number == 0);
  static char large[300000];
  memset(large, 'x', sizeof large);
  OK(denrei_group_send_lent(group, large, sizeof large, release, &released, 10 * SECOND, &number));
  CHECK(number == 1);
  FAILS(denrei_group_send_lent(group, NULL, 1, release, &released, 0, NULL), DENREI_INVALID, "data");
  FAILS(denrei_group_send(NULL, "x", 1, 0, NULL), DENREI_INVALID, "group");
  for (int i = 0; i < 2; i++) {
    receive(memberships[i], "first", 5, 0);
    receive(memberships[i], large, sizeof large, 1);
  }
  OK(denrei_group_flush(group, 10 * SECOND));
  CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) >= 1);

  uint32_t third = 99;
  OK(denrei_group_add_member(group, members[2], true, &third));
  denrei_group_event event;
  expect(group, DENREI_GROUP_JOINED, &event);
  CHECK(event.member == third && strcmp(event.address, members[2]) == 0 && event.has_number);
  OK(denrei_group_accept(listeners[2], 10 * SECOND, &memberships[2]));
  receive(memberships[2], "first", 5, 0);
  receive(memberships[2], large, sizeof large, 1);
  CHECK(denrei_group_add_member(group, members[2], false, NULL) != DENREI_OK);
  FAILS(denrei_group_remove_member(group, 77), DENREI_UNKNOWN_PEER, "77");

  denrei_group_state state;
  denrei_member_state table[COUNT];
  size_t count = 0;
  OK(denrei_group_flush(group, 10 * SECOND));
  OK(denrei_group_status(group, &state, table, COUNT, &count));
  CHECK(count == 3 && state.open && state.messages_sent == 2 && state.queued_bytes == 0);
  CHECK(strcmp(table[0].address, members[0]) == 0 && table[0].messages_acknowledged == 2);
  CHECK(table[0].loss <= 1 && state.symbols_sent + state.unicast_symbols > 0);
  denrei_membership_counters counted;
  OK(denrei_membership_count(memberships[0], &counted));
  CHECK(counted.reports > 0 && counted.bytes_received > 0);
  FAILS(denrei_membership_count(NULL, &counted), DENREI_INVALID, "membership");
  OK(denrei_membership_end(memberships[0]));
  OK(denrei_group_status(group, NULL, NULL, 0, NULL));
  FAILS(denrei_group_status(group, NULL, NULL, 1, NULL), DENREI_INVALID, "members");

  /* One leaves, one is removed, the last sees the end. */
  denrei_membership_leave(memberships[0]);
  expect(group, DENREI_GROUP_DEPARTED, &event);
  CHECK(strcmp(event.address, members[0]) == 0 && strstr(event.text, "left") != NULL);
  OK(denrei_group_remove_member(group, third));
  expect(group, DENREI_GROUP_DEPARTED, &event);
  CHECK(event.member == third);
  denrei_message *message = NULL;
  FAILS(denrei_membership_recv(memberships[2], 10 * SECOND, &message), DENREI_PEER_LOST, "removed");
  FAILS(denrei_membership_end(memberships[2]), DENREI_PEER_LOST, "removed");
  OK(denrei_group_close(group, 10 * SECOND));
  FAILS(denrei_membership_recv(memberships[1], 10 * SECOND, &message), DENREI_CLOSED, "closed");
  CHECK(denrei_group_send(group, "x", 1, 0, NULL) == DENREI_CLOSED);
  expect(group, DENREI_GROUP_CLOSED, &event);
  FAILS(denrei_group_event_next(group, -1, &event), DENREI_CLOSED, "closed");
  OK(denrei_group_status(group, &state, table, COUNT, &count));
  CHECK(!state.open && state.messages_sent == 2 && state.messages_acknowledged == 2);
  CHECK(count == 3 && table[1].messages_acknowledged == 2 && !table[0].active && !table[1].active);
  denrei_group_free(group);
  denrei_group_free(NULL);
  /* What was retained for members that come late is given back with the group. */
  for (int i = 0; i < 1000 && __atomic_load_n(&released, __ATOMIC_SEQ_CST) < 2; i++) poll(NULL, 0, 5);
  CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == 2);

  /* One asks to be let in. */
  OK(denrei_group_open(opener, address, members, 1, NULL, &group));
  OK(denrei_group_listener_address(listeners[1], text, sizeof text));
  CHECK(strcmp(text, address) == 0);
  OK(denrei_group_ask(listeners[1], opener_name, false));
  expect(group, DENREI_GROUP_JOINED, &event);
  CHECK(strcmp(event.address, members[1]) == 0);

  /* More than they hold, which nobody takes; then nobody is left to. */
  for (int i = 0; i < 20; i++) OK(denrei_group_send(group, large, sizeof large, 10 * SECOND, NULL));
  FAILS(denrei_group_flush(group, SECOND / 20), DENREI_TIMEOUT, "not everything was acknowledged by all members");
  OK(denrei_group_remove_member(group, 0));
  OK(denrei_group_remove_member(group, event.member));
  FAILS(denrei_group_flush(group, 10 * SECOND), DENREI_PEER_LOST, "no members left");
  denrei_group_free(group);

  denrei_membership_leave(memberships[1]);
  denrei_membership_leave(memberships[2]);
  denrei_membership_leave(NULL);
  for (int i = 0; i < COUNT; i++) {
    denrei_group_listener_free(listeners[i]);
    denrei_node_free(nodes[i]);
  }
  denrei_group_listener_free(NULL);
  denrei_node_free(opener);
}

static void add(void *context, void *accumulated, const void *next, size_t length) {
  ++*(int *)context;
  for (size_t i = 0; i < length / sizeof(uint32_t); i++)
    ((uint32_t *)accumulated)[i] += ((const uint32_t *)next)[i];
}

struct rank {
  denrei_node *node;
  const char **addresses;
  const char *group;
};

static void *work(void *argument) {
  struct rank *self = (struct rank *)argument;
  denrei_collective *set = NULL;
  OK(denrei_collective_open(self->node, self->addresses, COUNT, self->group, 20 * SECOND, &set));
  size_t rank = denrei_collective_rank(set), length = 0;
  CHECK(denrei_collective_size(set) == COUNT);
  OK(denrei_collective_barrier(set, 20 * SECOND));

  denrei_message *all = NULL;
  OK(denrei_collective_broadcast(set, "plan", rank == 0 ? 4 : 0, 20 * SECOND, &all));
  CHECK(denrei_message_length(all) == 4 && memcmp(denrei_message_data(all), "plan", 4) == 0);
  denrei_message_free(all);

  denrei_parts *parts = NULL;
  uint32_t own[2] = {(uint32_t)rank, 100};
  OK(denrei_collective_gather(set, own, sizeof own, 20 * SECOND, &parts));
  CHECK(denrei_parts_count(parts) == (rank == 0 ? COUNT : 0));
  denrei_parts_free(parts);
  OK(denrei_collective_all_gather(set, own, sizeof own, 20 * SECOND, &parts));
  CHECK(denrei_parts_count(parts) == COUNT);
  for (uint32_t other = 0; other < COUNT; other++) {
    const void *part = denrei_parts_data(parts, other, &length);
    CHECK(length == sizeof own && memcmp(part, &other, sizeof other) == 0);
  }
  CHECK(denrei_parts_data(parts, COUNT, &length) == NULL && length == 0);
  denrei_parts_free(parts);
  denrei_parts_free(NULL);

  int joins = 0;
  uint32_t sum[2];
  OK(denrei_collective_reduce(set, own, sizeof own, add, &joins, 20 * SECOND, &all));
  memcpy(sum, denrei_message_data(all), sizeof sum);
  CHECK(sum[0] == 0 + 1 + 2 && sum[1] == 300 && joins == (rank == 0 ? COUNT - 1 : 0));
  denrei_message_free(all);
  FAILS(denrei_collective_reduce(set, own, rank == 1 ? 4 : 8, add, &joins, 20 * SECOND, &all), DENREI_INVALID,
        "a rank has 4 bytes and rank 0 8");
  OK(denrei_collective_barrier(set, 20 * SECOND));
  OK(denrei_collective_close(set, 20 * SECOND));

  /* Once more, over a channel of its own. */
  OK(denrei_collective_open_on(self->node, self->addresses, COUNT, self->group, 14, 20 * SECOND, &set));
  OK(denrei_collective_barrier(set, 20 * SECOND));
  OK(denrei_collective_close(set, 20 * SECOND));
  return NULL;
}

static void collectives(const char *group) {
  char names[COUNT][64];
  const char *addresses[COUNT];
  struct rank ranks[COUNT];
  pthread_t threads[COUNT];
  for (int i = 0; i < COUNT; i++) {
    ranks[i].node = open_node(names[i], sizeof names[i]);
    ranks[i].addresses = addresses;
    ranks[i].group = group;
    addresses[i] = names[i];
  }
  denrei_collective *set = NULL;
  const char *others[1] = {"127.0.0.1:9"};
  FAILS(denrei_collective_open(ranks[0].node, others, 1, group, SECOND, &set), DENREI_INVALID, "own");
  OK(denrei_collective_close(NULL, 0));
  for (int i = 0; i < COUNT; i++) CHECK(pthread_create(&threads[i], NULL, work, &ranks[i]) == 0);
  for (int i = 0; i < COUNT; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < COUNT; i++) denrei_node_free(ranks[i].node);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  options_are_checked();
  groups(argv[1]);
  collectives(argv[1]);
  puts("ok");
  return 0;
}
