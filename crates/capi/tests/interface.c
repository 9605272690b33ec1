/* Every call of the interface, used rightly and wrongly. Prints "ok" at the end. */
#include "check.h"
#include <denrei/denrei.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000LL

static int released;

static void release(void *context) {
  CHECK(context == &released);
  __atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
}

static denrei_node *open_node(const char *offers) {
  denrei_config *config = denrei_config_new();
  OK(denrei_config_set(config, "drive", "thread"));
  OK(denrei_config_set(config, "offers", offers));
  OK(denrei_config_set(config, "offer_above_bytes", "64KiB"));
  OK(denrei_config_set(config, "failure_timeout", "4s"));
  OK(denrei_config_set(config, "keepalive", "1s"));
  OK(denrei_config_check(config));
  denrei_node *node = NULL;
  OK(denrei_node_open("127.0.0.1:0", config, &node));
  denrei_config_free(config);
  return node;
}

/* The next event of a kind; others are passed over. */
static denrei_event *expect(denrei_node *node, denrei_event_kind kind) {
  for (int i = 0; i < 100; i++) {
    denrei_event *event = NULL;
    OK(denrei_event_next(node, 5 * SECOND, &event));
    if (denrei_event_get_kind(event) == kind) return event;
    denrei_event_free(event);
  }
  CHECK(!"the event has come");
  return NULL;
}

static void settings(void) {
  size_t count = 0;
  while (denrei_setting_name(count) != NULL) count++;
  CHECK(count > 20);
  denrei_config *config = denrei_config_new();
  FAILS(denrei_config_set(config, "failure_timeout", "soon"), DENREI_CONFIG, "such as");
  FAILS(denrei_config_set(config, "no_such", "1"), DENREI_CONFIG, "channel_credit_bytes");
  FAILS(denrei_config_set(NULL, "drive", "thread"), DENREI_INVALID, "NULL");
  FAILS(denrei_config_set(config, NULL, "thread"), DENREI_INVALID, "NULL");
  FAILS(denrei_config_set(config, "drive", "\xff\xfe"), DENREI_INVALID, "UTF-8");
  for (size_t at = 0; at < count; at++) {
    const char *name = denrei_setting_name(at);
    if (strstr(name, "_directory") == NULL) FAILS(denrei_config_set(config, name, "-1"), DENREI_CONFIG, name);
  }
  FAILS(denrei_config_set(config, "max_channels", "65536"), DENREI_CONFIG, "from 16 to 65535");
  OK(denrei_config_set(config, "failure_timeout", "0s"));
  FAILS(denrei_config_check(config), DENREI_CONFIG, "at least 10ms");
  OK(denrei_config_set(config, "failure_timeout", "8s"));
  FAILS(denrei_config_check(config), DENREI_CONFIG, "keepalive is 5s, but has to be between 1ms and half of");
  OK(denrei_config_set(config, "keepalive", "off"));
  OK(denrei_config_set(config, "rate_request_burst_bytes", "1025TiB"));
  FAILS(denrei_config_check(config), DENREI_CONFIG, "at most 1125899906842624");
  OK(denrei_config_set(config, "rate_request_burst_bytes", "0"));
  OK(denrei_config_check(config));
  OK(denrei_config_set(config, "channel_credit_bytes", "1"));
  FAILS(denrei_config_check(config), DENREI_CONFIG, "channel_credit_bytes");
  denrei_node *node = NULL;
  FAILS(denrei_node_open("127.0.0.1:0", config, &node), DENREI_CONFIG, "channel_credit_bytes");
  CHECK(node == NULL);
  denrei_config_free(config);
  denrei_config_free(NULL);
  FAILS(denrei_node_open("nowhere", NULL, &node), DENREI_INVALID, "nowhere");
  config = denrei_config_new();
  FAILS(denrei_config_key_file(config, "/nowhere/cluster.key"), DENREI_KEY, "/nowhere/cluster.key");
  FAILS(denrei_config_identity(config, "/nowhere/me.key", "/nowhere/list"), DENREI_KEY, "/nowhere/me.key");
  denrei_config_free(config);
  FAILS(denrei_node_open("[fe80::7%no-such]:0", NULL, &node), DENREI_INVALID, "no interface \"no-such\"");
  FAILS(denrei_node_open("[fe80::7%lo]:0", NULL, &node), DENREI_EXPOSED, "[fe80::7%1]:0");
  FAILS(denrei_node_open("127.0.0.1:0", NULL, NULL), DENREI_INVALID, "NULL");
  FAILS(denrei_node_open("0.0.0.0:0", NULL, &node), DENREI_EXPOSED, "keygen");
  denrei_node_free(NULL);
}

static void messages(denrei_node *a, denrei_node *b) {
  char address[64];
  OK(denrei_node_address(b, address, sizeof address));
  FAILS(denrei_node_address(b, address, 3), DENREI_BUFFER, "needed");
  denrei_peer peer = DENREI_NO_PEER, again = DENREI_NO_PEER;
  FAILS(denrei_peer_at(a, address, &peer), DENREI_UNKNOWN_PEER, address);
  FAILS(denrei_connect(a, "127.0.0.1", &peer), DENREI_INVALID, "address");
  OK(denrei_connect(a, address, &peer));
  OK(denrei_peer_at(a, address, &again));
  CHECK(peer == again);

  uint64_t number = 99;
  OK(denrei_set_priority(a, peer, 3, 1));
  OK(denrei_send(a, peer, 3, "first", 5));
  OK(denrei_send_with(a, peer, 3, NULL, 0, DENREI_REPORT_DELIVERED, -1, &number));
  CHECK(number == 1);
  OK(denrei_send_lent(a, peer, 5, "lent", 4, release, &released, DENREI_REPORT_ACKNOWLEDGED, SECOND, &number));

  denrei_message *message = NULL;
  denrei_peer sender = DENREI_NO_PEER;
  FAILS(denrei_recv_from(b, 77, 3, 5 * SECOND, &message), DENREI_UNKNOWN_PEER, "77");
  OK(denrei_ready(b, 5 * SECOND, &sender, NULL, NULL));
  OK(denrei_recv_from(b, sender, 3, 5 * SECOND, &message));
  CHECK(denrei_message_length(message) == 5 && memcmp(denrei_message_data(message), "first", 5) == 0);
  CHECK(denrei_message_channel(message) == 3 && denrei_message_number(message) == 0);
  denrei_peer back = denrei_message_peer(message);
  denrei_message_free(message);
  denrei_message_free(NULL);
  for (int i = 0; i < 2; i++) {
    OK(denrei_recv(b, 5 * SECOND, &message));
    CHECK(denrei_message_length(message) == (denrei_message_channel(message) == 5 ? 4u : 0u));
    denrei_message_free(message);
  }
  denrei_event *event = expect(a, DENREI_EVENT_DELIVERED);
  CHECK(denrei_event_peer(event) == peer);
  CHECK(denrei_event_message(event).channel == 3 && denrei_event_message(event).number == 1);
  denrei_event_free(event);
  OK(denrei_flush(a, peer, 5 * SECOND));
  for (int i = 0; i < 1000 && __atomic_load_n(&released, __ATOMIC_SEQ_CST) == 0; i++) poll(NULL, 0, 5);
  CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == 1);

  event = expect(b, DENREI_EVENT_CONNECTED);
  CHECK(strncmp(denrei_event_text(event), "127.0.0.1:", 10) == 0);
  denrei_event_free(event);
  OK(denrei_recv_from(b, back, 3, 0, &message) == DENREI_TIMEOUT ? DENREI_OK : DENREI_INTERNAL);

  FAILS(denrei_send(a, peer, 60000, "x", 1), DENREI_NO_CHANNEL, "60000");
  FAILS(denrei_recv_from(a, peer, 60000, -1, &message), DENREI_NO_CHANNEL, "60000");
  FAILS(denrei_send(a, 77, 0, "x", 1), DENREI_UNKNOWN_PEER, "77");
  FAILS(denrei_send(a, peer, 0, NULL, 1), DENREI_INVALID, "data");
  FAILS(denrei_send_with(a, peer, 0, "x", 1, 9, 0, NULL), DENREI_INVALID, "completion");
  FAILS(denrei_send(a, peer, 0, "x", (size_t)-1), DENREI_INVALID, "length");
  FAILS(denrei_send_lent(a, peer, 0, "x", (size_t)-1, NULL, NULL, DENREI_REPORT_NOTHING, 0, NULL), DENREI_INVALID, "length");
  FAILS(denrei_send_lent(a, 77, 0, "x", 1, release, &released, DENREI_REPORT_NOTHING, 0, NULL), DENREI_UNKNOWN_PEER, "77");
  CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == 2);
  FAILS(denrei_recv(a, 1000, &message), DENREI_TIMEOUT, "time");
  FAILS(denrei_recv(a, 0, NULL), DENREI_INVALID, "NULL");
}

static void offers(denrei_node *a, denrei_node *b, denrei_peer peer, int queued) {
  enum { SIZE = 300000 };
  unsigned char *sent = (unsigned char *)malloc(SIZE), *placed = (unsigned char *)calloc(1, SIZE);
  for (size_t i = 0; i < SIZE; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
  OK(denrei_send(a, peer, 1, sent, SIZE));
  denrei_event *event = expect(b, DENREI_EVENT_OFFERED);
  CHECK(denrei_event_bytes(event) == SIZE);
  denrei_peer back = denrei_event_peer(event);
  denrei_message_id id = denrei_event_message(event);
  denrei_event_free(event);
  FAILS(denrei_accept(b, back, id.channel, id.number + 7, placed, SIZE), DENREI_NO_OFFER, "offer");
  FAILS(denrei_queue_accept(b, back, id.channel, id.number + 7, placed, SIZE), DENREI_NO_OFFER, "offer");
  FAILS(denrei_accept(b, back, id.channel, id.number, placed, (size_t)-1), DENREI_INVALID, "length");
  FAILS(denrei_queue_accept(b, back, id.channel, id.number, placed, (size_t)-1), DENREI_INVALID, "length");
  if (queued) {
    OK(denrei_queue_accept(b, back, id.channel, id.number, placed, SIZE));
    OK(denrei_send_queued(b));
  } else {
    OK(denrei_accept(b, back, id.channel, id.number, placed, SIZE));
  }
  denrei_message *message = NULL;
  event = NULL;
  for (int i = 0; i < 20 && message == NULL; i++) {
    OK(denrei_next(b, 5 * SECOND, &message, &event));
    denrei_event_free(event);
  }
  CHECK(denrei_message_channel(message) == 1 && denrei_message_length(message) == 0);
  CHECK(memcmp(sent, placed, SIZE) == 0);
  denrei_message_free(message);

  OK(denrei_send(a, peer, 1, sent, SIZE));
  event = expect(b, DENREI_EVENT_OFFERED);
  OK(denrei_refuse(b, back, 1, denrei_event_message(event).number));
  denrei_event_free(event);
  denrei_event_free(expect(a, DENREI_EVENT_REFUSED));
  free(sent);
  free(placed);
}

static void state(denrei_node *a, denrei_node *b, denrei_peer peer) {
  denrei_flow_state flow, table[4];
  OK(denrei_flow(a, peer, &flow));
  CHECK(flow.peer == peer && flow.phase == DENREI_PHASE_OPEN && flow.srtt_ns > 0 && flow.window_bytes > 0);
  CHECK(flow.incarnation == denrei_node_incarnation(b));
  CHECK(flow.messages_sent >= 4 && flow.packets_sent > 0 && flow.datagram_bytes >= 576);
  FAILS(denrei_flow(a, 77, &flow), DENREI_UNKNOWN_PEER, "77");
  size_t count = 0;
  OK(denrei_peers(a, table, 4, &count));
  CHECK(count == 1 && table[0].peer == peer);
  OK(denrei_peers(a, NULL, 0, &count));
  char address[64], expected[64];
  OK(denrei_peer_address(a, peer, address, sizeof address));
  OK(denrei_node_address(b, expected, sizeof expected));
  CHECK(strcmp(address, expected) == 0);
  uint32_t request = 0;
  OK(denrei_request_status(a, peer, &request));
  denrei_event *event = expect(a, DENREI_EVENT_STATUS);
  CHECK(denrei_event_message(event).number == request);
  denrei_event_free(event);
  denrei_counters counters;
  OK(denrei_node_counters(a, &counters));
  CHECK(counters.datagrams > 0 && counters.send_calls > 0 && counters.bytes_sent > 0);
  CHECK(counters.datagrams_received > 0 && counters.overruns == 0 && counters.recv_truncated == 0);
  denrei_capabilities capabilities;
  OK(denrei_node_capabilities(a, &capabilities));
  CHECK(strcmp(capabilities.backend, "batched") == 0 || strcmp(capabilities.backend, "plain") == 0);
  CHECK(capabilities.recv_buffer_bytes > 0 && capabilities.max_segments > 0);
  FAILS(denrei_node_capabilities(NULL, &capabilities), DENREI_INVALID, "node");
  char warning[512];
  denrei_code code = denrei_node_warning(a, 0, warning, sizeof warning);
  CHECK(code == DENREI_OK || code == DENREI_TIMEOUT);
  OK(denrei_node_poll(a));
}

static void steering(denrei_node *a, denrei_node *b, denrei_peer peer) {
  denrei_peer back = DENREI_NO_PEER;
  uint16_t channel = 9;
  size_t length = 0;
  uint64_t count = 99, number = 99;
  denrei_code code = denrei_ready(b, 0, NULL, NULL, NULL);
  CHECK(code == DENREI_TIMEOUT);
  OK(denrei_wait(a, peer, 1000, 5 * SECOND));
  FAILS(denrei_wait(a, 77, 1000, 0), DENREI_UNKNOWN_PEER, "77");
  OK(denrei_send_within(a, peer, 2, "frame", 5, DENREI_REPORT_NOTHING, 5 * SECOND, &number));
  OK(denrei_ready(b, 5 * SECOND, &back, &channel, &length));
  CHECK(channel == 2 && length == 5);
  denrei_message *message = NULL;
  OK(denrei_recv(b, 0, &message));
  denrei_message_free(message);
  OK(denrei_flush(a, peer, 5 * SECOND));
  OK(denrei_queue_length(a, peer, &count));
  CHECK(count == 0);
  count = 99;
  OK(denrei_retransmit(a, peer, &count));
  CHECK(count < 10);
  OK(denrei_retransmit(a, peer, NULL));
  OK(denrei_set_weight(b, back, 200));
  FAILS(denrei_set_weight(b, back, 0), DENREI_INVALID, "1");
  OK(denrei_set_rate(b, back, 0, 0));
  denrei_event *event = expect(a, DENREI_EVENT_RATE_SET);
  CHECK(denrei_event_bytes(event) == 0);
  denrei_event_free(event);
  OK(denrei_send_within(a, peer, 2, "late", 4, DENREI_REPORT_NOTHING, 20000, &number));
  event = expect(a, DENREI_EVENT_EXPIRED);
  CHECK(denrei_event_message(event).number == number);
  denrei_event_free(event);
  OK(denrei_set_rate(b, back, 1000000000, 0));
  denrei_flow_state flow;
  OK(denrei_flow(b, back, &flow));
  CHECK(flow.has_rate_set && flow.rate_set.bytes_per_s == 1000000000 && flow.weight == 200);
  denrei_event_free(expect(a, DENREI_EVENT_RATE_SET));
}

static bool only_six(void *context, denrei_peer peer, uint16_t channel) {
  ++*(int *)context;
  return peer != DENREI_NO_PEER && channel == 6;
}

/* Takes what is here, events aside: how many messages, and all their bytes. */
static size_t drained(denrei_node *node, denrei_wanted wanted, int *asked, size_t room, size_t *bytes) {
  denrei_incoming incoming[8];
  size_t count = 99, messages = 0;
  *bytes = 0;
  OK(denrei_drain(node, wanted, asked, incoming, room, &count));
  CHECK(count <= room);
  for (size_t i = 0; i < count; i++) {
    CHECK((incoming[i].message == NULL) != (incoming[i].event == NULL));
    if (incoming[i].message != NULL) {
      messages++;
      *bytes += denrei_message_length(incoming[i].message);
    }
    denrei_message_free(incoming[i].message);
    denrei_event_free(incoming[i].event);
  }
  return messages;
}

static void several_at_once(denrei_node *a, denrei_node *b, denrei_peer peer) {
  int before = __atomic_load_n(&released, __ATOMIC_SEQ_CST), asked = 0;
  uint64_t number = 99;
  size_t bytes = 0, count = 0;
  OK(denrei_queue(a, peer, 6, "one", 3, DENREI_REPORT_NOTHING, NULL));
  OK(denrei_queue(a, peer, 7, "another", 7, DENREI_REPORT_ACKNOWLEDGED, &number));
  CHECK(number == 0);
  OK(denrei_queue_lent(a, peer, 6, "three", 5, release, &released, DENREI_REPORT_NOTHING, &number));
  CHECK(number == 1);
  FAILS(denrei_queue(a, 77, 6, "x", 1, DENREI_REPORT_NOTHING, NULL), DENREI_UNKNOWN_PEER, "77");
  FAILS(denrei_queue(a, peer, 6, NULL, 1, DENREI_REPORT_NOTHING, NULL), DENREI_INVALID, "data");
  FAILS(denrei_queue(a, peer, 6, "x", 1, 9, NULL), DENREI_INVALID, "completion");
  FAILS(denrei_queue_lent(a, 77, 6, "x", 1, release, &released, DENREI_REPORT_NOTHING, NULL), DENREI_UNKNOWN_PEER, "77");
  FAILS(denrei_send_queued(NULL), DENREI_INVALID, "node");
  OK(denrei_send_queued(a));
  OK(denrei_wait_incoming(b, 5 * SECOND));
  FAILS(denrei_wait_incoming(NULL, 0), DENREI_INVALID, "node");
  OK(denrei_flush(a, peer, 5 * SECOND));
  denrei_event_free(expect(a, DENREI_EVENT_ACKNOWLEDGED));

  FAILS(denrei_drain(b, NULL, NULL, NULL, 1, &count), DENREI_INVALID, "incoming");
  CHECK(drained(b, NULL, NULL, 0, &bytes) == 0);
  CHECK(drained(b, only_six, &asked, 8, &bytes) == 2 && bytes == 8 && asked > 0);
  CHECK(drained(b, only_six, &asked, 8, &bytes) == 0);
  OK(denrei_wait_incoming(b, 5 * SECOND));
  CHECK(drained(b, NULL, NULL, 8, &bytes) == 1 && bytes == 7);
  CHECK(denrei_wait_incoming(b, 0) == DENREI_TIMEOUT);
  for (int i = 0; i < 1000 && __atomic_load_n(&released, __ATOMIC_SEQ_CST) < before + 2; i++) poll(NULL, 0, 5);
  CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == before + 2);
}

static void event_loop(denrei_node *a, denrei_node *b, denrei_peer peer) {
  int fd = denrei_node_fd(b);
  CHECK(fd >= 0);
  CHECK(denrei_node_fd(NULL) == -1);
  OK(denrei_send(a, peer, 0, "wake", 4));
  denrei_message *message = NULL;
  for (int i = 0; i < 50 && message == NULL; i++) {
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, 5000) == 1);
    OK(denrei_node_clear(b));
    denrei_recv(b, 0, &message);
  }
  CHECK(denrei_message_length(message) == 4);
  denrei_message_free(message);
}

static void endings(denrei_node *a, denrei_node *b, denrei_peer peer) {
  OK(denrei_close_write(a, peer));
  FAILS(denrei_send(a, peer, 0, "x", 1), DENREI_CLOSED, "closed writing");
  denrei_event *event = expect(b, DENREI_EVENT_DONE_WRITING);
  denrei_peer back = denrei_event_peer(event);
  denrei_event_free(event);
  denrei_message *message = NULL;
  FAILS(denrei_recv_from(b, back, 0, -1, &message), DENREI_CLOSED, "no more messages");
  OK(denrei_close_read(a, peer));
  denrei_event_free(expect(b, DENREI_EVENT_DONE_READING));
  FAILS(denrei_abort(b, back, 0x8001, NULL), DENREI_INVALID, "reason");
  denrei_close(b, back);
  event = expect(a, DENREI_EVENT_PEER_LOST);
  CHECK(strlen(denrei_event_text(event)) > 0);
  size_t count = 1;
  denrei_event_messages(event, &count);
  CHECK(count == 0);
  denrei_event_free(event);

  char address[64];
  OK(denrei_node_address(b, address, sizeof address));
  OK(denrei_connect(a, address, &peer));
  OK(denrei_send(a, peer, 0, "again", 5));
  OK(denrei_recv(b, 5 * SECOND, &message));
  OK(denrei_abort(b, denrei_message_peer(message), 0x8001, "enough"));
  denrei_message_free(message);
  FAILS(denrei_recv_from(a, peer, 0, -1, &message), DENREI_PEER_LOST, "enough");
  event = expect(a, DENREI_EVENT_PEER_LOST);
  CHECK(denrei_event_reason(event) == DENREI_LOST_ENDED && denrei_event_code(event) == 0x8001);
  CHECK(strstr(denrei_event_text(event), "enough") != NULL);
  CHECK(strcmp(denrei_event_address(event), address) == 0 && strcmp(denrei_event_address(NULL), "") == 0);
  denrei_event_free(event);
  denrei_event_free(NULL);
}

/* What a forked child frees is not the parent's: the session goes on. */
static void forked_children(denrei_node *a, denrei_node *b, denrei_peer peer) {
  pid_t child = fork();
  if (child == 0) {
    denrei_node_free(a);
    denrei_node_free(b);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  OK(denrei_send(a, peer, 0, "still here", 10));
  denrei_message *message = NULL;
  OK(denrei_recv(b, 5 * SECOND, &message));
  CHECK(denrei_message_length(message) == 10);
  denrei_message_free(message);
  OK(denrei_flush(a, peer, 5 * SECOND));
}

int main(void) {
  CHECK(strlen(denrei_version()) >= 5);
  settings();
  denrei_node *a = open_node("automatic"), *b = open_node("ask");
  messages(a, b);
  char address[64];
  denrei_peer peer = DENREI_NO_PEER;
  OK(denrei_node_address(b, address, sizeof address));
  OK(denrei_peer_at(a, address, &peer));
  offers(a, b, peer, 0);
  offers(a, b, peer, 1);
  state(a, b, peer);
  steering(a, b, peer);
  several_at_once(a, b, peer);
  event_loop(a, b, peer);
  forked_children(a, b, peer);
  endings(a, b, peer);
  denrei_node_free(a);
  denrei_node_free(b);
  puts("ok");
  return 0;
}
