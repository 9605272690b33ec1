/* Casts and relays from C: every call.  cast DIRECTORY GROUP  */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000, RECEIVERS = 2, SIZE = 3000000 };

static char directory[512];
static const char *group;

static denrei_node *open_node(void) {
  denrei_config *config = denrei_config_new();
  OK(denrei_config_set(config, "drive", "thread"));
  denrei_node *node;
  OK(denrei_node_open("127.0.0.1:0", config, &node));
  denrei_config_free(config);
  return node;
}

static denrei_cast_options *new_options(void) {
  denrei_cast_options *options = denrei_cast_options_new();
  OK(denrei_cast_options_set(options, "group", group));
  OK(denrei_cast_options_set(options, "wait", "30s"));
  return options;
}

static void path_of(char *path, size_t size, const char *name) {
  CHECK((size_t)snprintf(path, size, "%s/%s", directory, name) < size);
}

static void write_file(const char *path) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  for (int i = 0; i < SIZE; i++)
    CHECK(fputc(i * 7 % 251, file) != EOF);
  CHECK(fclose(file) == 0);
}

static void same_file(const char *path) {
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  for (int i = 0; i < SIZE; i++)
    CHECK(fgetc(file) == i * 7 % 251);
  CHECK(fgetc(file) == EOF);
  CHECK(fclose(file) == 0);
}

/* What a watch has seen, and whether it lets the cast go on. */
struct seen {
  int calls;
  uint64_t bytes;
  size_t members, warnings;
  bool go_on;
};

static bool watch(void *context, const denrei_cast_progress *progress) {
  struct seen *seen = (struct seen *)context;
  seen->calls++;
  seen->bytes = progress->bytes;
  if (progress->member_count > seen->members)
    seen->members = progress->member_count;
  for (size_t i = 0; i < progress->warning_count; i++)
    CHECK(strlen(progress->warnings[i]) > 0);
  seen->warnings = progress->warning_count;
  for (size_t i = 0; i < progress->member_count; i++)
    CHECK(strncmp(progress->members[i].address, "127.0.0.1:", 10) == 0);
  return seen->go_on;
}

struct receiver {
  denrei_node *node;
  char address[64];
  char into[600];
  denrei_cast_receipt receipt;
  struct seen seen;
  pthread_t thread;
};

static void *receive(void *argument) {
  struct receiver *receiver = (struct receiver *)argument;
  denrei_cast_options *options = new_options();
  OK(denrei_cast_options_set(options, "name", "one of many"));
  OK(denrei_cast_options_watch(options, watch, &receiver->seen));
  OK(denrei_cast_receive(receiver->node, receiver->into, options, &receiver->receipt));
  denrei_cast_options_free(options);
  return NULL;
}

static void a_file_reaches_all(void) {
  char file[600], name[32];
  path_of(file, sizeof file, "order");
  write_file(file);
  struct receiver receivers[RECEIVERS];
  const char *members[RECEIVERS];
  memset(receivers, 0, sizeof receivers);
  for (int i = 0; i < RECEIVERS; i++) {
    struct receiver *receiver = &receivers[i];
    receiver->node = open_node();
    receiver->seen.go_on = true;
    OK(denrei_node_address(receiver->node, receiver->address, sizeof receiver->address));
    members[i] = receiver->address;
    snprintf(name, sizeof name, "into%d", i);
    path_of(receiver->into, sizeof receiver->into, name);
    CHECK(mkdir(receiver->into, 0700) == 0);
    CHECK(pthread_create(&receiver->thread, NULL, receive, receiver) == 0);
  }
  denrei_node *node = open_node();
  denrei_cast_options *options = new_options();
  struct seen seen = {0, 0, 0, 0, true};
  OK(denrei_cast_options_watch(options, watch, &seen));
  char fifo[600];
  path_of(fifo, sizeof fifo, "fifo");
  CHECK(mkfifo(fifo, 0600) == 0);
  const char *paths[] = {file, fifo};
  denrei_cast_report *report;
  OK(denrei_cast_send(node, paths, 2, members, RECEIVERS, options, &report));
  CHECK(seen.calls > 0 && seen.members == RECEIVERS && seen.warnings == 1);

  denrei_cast_summary summary;
  OK(denrei_cast_report_summary(report, &summary));
  CHECK(summary.complete && summary.bytes == SIZE && summary.member_count == RECEIVERS);
  CHECK(summary.wire_bytes > SIZE && summary.wire_packets > 0 && summary.took_us > 0);
  denrei_cast_member member;
  for (size_t i = 0; i < RECEIVERS; i++) {
    OK(denrei_cast_report_member(report, i, &member));
    CHECK(member.stage == DENREI_CAST_COMPLETE && member.took_us > 0);
    CHECK(strcmp(member.name, "one of many") == 0 && member.reason[0] == '\0');
  }
  FAILS(denrei_cast_report_member(report, RECEIVERS, &member), DENREI_UNKNOWN_PEER, "no number 2");
  denrei_cast_report_free(report);
  for (int i = 0; i < RECEIVERS; i++) {
    struct receiver *receiver = &receivers[i];
    CHECK(pthread_join(receiver->thread, NULL) == 0);
    CHECK(receiver->receipt.bytes == SIZE && receiver->receipt.files == 1);
    CHECK(receiver->receipt.new_bytes == SIZE && receiver->receipt.resumed_bytes == 0);
    CHECK(receiver->receipt.cast == summary.cast && receiver->receipt.took_us > 0);
    CHECK(receiver->seen.calls > 0 && receiver->seen.bytes == SIZE);
    strcat(receiver->into, "/order");
    same_file(receiver->into);
    denrei_node_free(receiver->node);
  }
  denrei_cast_options_free(options);
  denrei_node_free(node);
}

/* Reads what the other end of a pipe brings, and says how many bytes were as they should be. */
static void *read_pipe(void *argument) {
  int fd = *(int *)argument;
  size_t *count = (size_t *)calloc(1, sizeof *count);
  unsigned char bytes[4096];
  for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
    for (ssize_t i = 0; i < got; i++, ++*count)
      CHECK(bytes[i] == (int)*count * 7 % 251);
  return count;
}

struct stream {
  denrei_node *node;
  int fd;
  denrei_cast_receipt receipt;
};

/* A Node that is to pass a cast on to `fd`. */
static struct stream new_stream(int fd, char *address, size_t size) {
  struct stream stream;
  memset(&stream, 0, sizeof stream);
  stream.node = open_node();
  stream.fd = fd;
  OK(denrei_node_address(stream.node, address, size));
  return stream;
}

static void *receive_stream(void *argument) {
  struct stream *stream = (struct stream *)argument;
  denrei_cast_options *options = new_options();
  OK(denrei_cast_receive_stream(stream->node, stream->fd, options, &stream->receipt));
  denrei_cast_options_free(options);
  return NULL;
}

/* A file is read as a stream; it comes out of a pipe. */
static void a_stream_reaches_a_pipe(void) {
  char file[600], address[64];
  path_of(file, sizeof file, "order");
  int in = open(file, O_RDONLY), out[2];
  CHECK(in >= 0 && pipe(out) == 0);
  struct stream stream = new_stream(out[1], address, sizeof address);
  pthread_t receiving, reading;
  CHECK(pthread_create(&receiving, NULL, receive_stream, &stream) == 0);
  CHECK(pthread_create(&reading, NULL, read_pipe, &out[0]) == 0);

  denrei_node *node = open_node();
  denrei_cast_options *options = new_options();
  OK(denrei_cast_options_set(options, "retain_bytes", "8MiB"));
  const char *members[] = {address};
  FAILS(denrei_cast_send_stream(node, -1, members, 1, options, NULL), DENREI_INVALID, "-1");
  FAILS(denrei_cast_send_stream(node, 9999, members, 1, options, NULL), DENREI_SYSTEM, "9999");
  FAILS(denrei_cast_receive_stream(node, 9999, options, NULL), DENREI_SYSTEM, "9999");
  FAILS(denrei_cast_send_stream(node, in, NULL, 0, options, NULL), DENREI_TIMEOUT, "min_members");
  denrei_cast_report *report;
  OK(denrei_cast_send_stream(node, in, members, 1, options, &report));
  denrei_cast_summary summary;
  OK(denrei_cast_report_summary(report, &summary));
  CHECK(summary.complete && summary.bytes == SIZE && summary.member_count == 1);
  denrei_cast_report_free(report);

  CHECK(pthread_join(receiving, NULL) == 0);
  CHECK(stream.receipt.bytes == SIZE && stream.receipt.cast == summary.cast);
  /* Both descriptors are still this program's. */
  CHECK(close(in) == 0 && close(out[1]) == 0);
  void *count = NULL;
  CHECK(pthread_join(reading, &count) == 0);
  CHECK(*(size_t *)count == SIZE);
  free(count);
  close(out[0]);
  denrei_cast_options_free(options);
  denrei_node_free(node);
  denrei_node_free(stream.node);
}

static void *receive_unread(void *argument) {
  struct stream *stream = (struct stream *)argument;
  denrei_cast_options *options = new_options();
  FAILS(denrei_cast_receive_stream(stream->node, stream->fd, options, NULL), DENREI_SYSTEM, "Broken pipe");
  sigset_t waiting;
  CHECK(sigpending(&waiting) == 0 && sigismember(&waiting, SIGPIPE) == 0);
  CHECK(pthread_sigmask(SIG_BLOCK, NULL, &waiting) == 0 && sigismember(&waiting, SIGPIPE) == 0);
  denrei_cast_options_free(options);
  return NULL;
}

/* A pipe that nobody reads any more ends the call, and not the program. */
static void a_pipe_that_nobody_reads_is_an_error(void) {
  char file[600], address[64];
  path_of(file, sizeof file, "order");
  int in = open(file, O_RDONLY), out[2];
  CHECK(in >= 0 && pipe(out) == 0 && close(out[0]) == 0);
  struct stream stream = new_stream(out[1], address, sizeof address);
  pthread_t receiving;
  CHECK(pthread_create(&receiving, NULL, receive_unread, &stream) == 0);
  denrei_node *node = open_node();
  denrei_cast_options *options = new_options();
  const char *members[] = {address};
  denrei_cast_report *report;
  OK(denrei_cast_send_stream(node, in, members, 1, options, &report));
  denrei_cast_summary summary;
  OK(denrei_cast_report_summary(report, &summary));
  CHECK(!summary.complete);
  denrei_cast_report_free(report);
  CHECK(pthread_join(receiving, NULL) == 0);
  CHECK(close(in) == 0 && close(out[1]) == 0);
  denrei_cast_options_free(options);
  denrei_node_free(node);
  denrei_node_free(stream.node);
}

static void what_goes_wrong_is_told(void) {
  denrei_node *node = open_node();
  denrei_cast_options *options = new_options();
  char file[600];
  path_of(file, sizeof file, "order");
  const char *paths[] = {file}, *nobody[] = {"127.0.0.1:9"};
  FAILS(denrei_cast_options_set(options, "colour", "red"), DENREI_CONFIG, "patience");
  FAILS(denrei_cast_options_set(options, "group", "10.0.0.1:5"), DENREI_CONFIG, "multicast");
  FAILS(denrei_cast_send(node, paths, 0, nobody, 1, options, NULL), DENREI_INVALID, "paths");
  FAILS(denrei_cast_send(node, paths, 1, NULL, 0, options, NULL), DENREI_TIMEOUT, "min_members");
  FAILS(denrei_cast_receive(node, "/no/such/place", options, NULL), DENREI_SYSTEM, "/no/such");
  struct seen seen = {0, 0, 0, 0, false};
  OK(denrei_cast_options_watch(options, watch, &seen));
  FAILS(denrei_cast_send(node, paths, 1, nobody, 1, options, NULL), DENREI_CANCELLED, "broken off");
  FAILS(denrei_cast_receive(node, directory, options, NULL), DENREI_CANCELLED, "broken off");
  CHECK(seen.calls == 2);
  OK(denrei_cast_options_watch(options, NULL, NULL));
  OK(denrei_cast_options_set(options, "wait", "50ms"));
  FAILS(denrei_cast_receive(node, directory, options, NULL), DENREI_TIMEOUT, "with \"members\", or announce");
  size_t options_known = 0;
  while (denrei_cast_option_name(options_known) != NULL)
    options_known++;
  CHECK(options_known >= 13);
  denrei_cast_options_free(options);
  denrei_cast_options_free(NULL);
  denrei_cast_report_free(NULL);
  denrei_node_free(node);
}

static void a_relay_forwards(void) {
  denrei_node *far_node = open_node(), *near_node = open_node();
  char target[64], stands_for[64];
  OK(denrei_node_address(far_node, target, sizeof target));
  const char *listen[] = {"127.0.0.1:0"}, *targets[] = {target};
  denrei_relay_options options = {"127.0.0.1", 1 << 20, 4};
  denrei_relay *relay;
  OK(denrei_relay_start(listen, targets, 1, NULL, &options, &relay));
  OK(denrei_relay_address(relay, 0, stands_for, sizeof stands_for));
  FAILS(denrei_relay_address(relay, 1, stands_for, sizeof stands_for), DENREI_UNKNOWN_PEER, "route 1");

  denrei_peer peer;
  OK(denrei_connect(near_node, stands_for, &peer));
  OK(denrei_send(near_node, peer, 0, "over the hill", 13));
  denrei_message *message;
  OK(denrei_recv(far_node, 10 * SECOND, &message));
  CHECK(denrei_message_length(message) == 13);
  CHECK(memcmp(denrei_message_data(message), "over the hill", 13) == 0);
  denrei_message_free(message);

  size_t pairs;
  OK(denrei_relay_pairs(relay, NULL, 0, &pairs));
  CHECK(pairs == 1);
  denrei_relay_pair pair;
  /* It counts after it has sent: wait, at most ten seconds. */
  const struct timespec nap = {0, 10000000};
  int looks = 0;
  do {
    CHECK(looks++ < 1000);
    nanosleep(&nap, NULL);
    OK(denrei_relay_pairs(relay, &pair, 1, &pairs));
  } while (pair.forwarded_messages == 0);
  CHECK(strcmp(pair.target, target) == 0 && pair.forwarded_bytes == 13);
  CHECK(pair.forwarded_messages == 1 && pair.returned_messages == 0);
  OK(denrei_relay_drain(relay, 20 * SECOND));
  OK(denrei_relay_pairs(relay, NULL, 0, &pairs));
  CHECK(pairs == 0);
  denrei_relay_free(relay);
  denrei_relay_free(NULL);

  options.max_pairs = 5000;
  FAILS(denrei_relay_start(listen, targets, 1, NULL, &options, &relay), DENREI_CONFIG, "max_pairs");
  options.from = "here";
  FAILS(denrei_relay_start(listen, targets, 1, NULL, &options, &relay), DENREI_INVALID, "here");
  FAILS(denrei_relay_start(listen, targets, 0, NULL, NULL, &relay), DENREI_INVALID, "listen");
  denrei_node_free(near_node);
  denrei_node_free(far_node);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  snprintf(directory, sizeof directory, "%s", argv[1]);
  group = argv[2];
  a_file_reaches_all();
  a_stream_reaches_a_pipe();
  a_pipe_that_nobody_reads_is_an_error();
  what_goes_wrong_is_told();
  a_relay_forwards();
  puts("ok");
  return 0;
}
