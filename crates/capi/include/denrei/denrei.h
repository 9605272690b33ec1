/*
 * denrei: reliable messages between the processes of a cluster, over one UDP port each.
 *
 * Calls return a denrei_code, DENREI_OK on success; denrei_error_message() then says in words what
 * went wrong and what to do about it. Results come through pointers, which are written only on
 * success. What a call hands out belongs to the caller, who gives it back with the matching _free,
 * which takes NULL. A node may be used by any number of threads at a time; everything else by one.
 * All of it is the process's that opened it: in a child that it has forked, calls give DENREI_INVALID, and what frees
 * does nothing. Times are in microseconds: 0 does not wait, a negative one waits without limit. Addresses are
 * text, "192.0.2.7:7411", "[2001:db8::7]:7411", "node1:7411", or with this host's interface to the link where
 * only that has the address, "[fe80::7%eth0]:7411". Peers are numbers; a number is not used again for
 * another peer while the node lives.
 */

#ifndef DENREI_DENREI_H
#define DENREI_DENREI_H

/* Made by cbindgen from crates/capi/src: change it there. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * What became of a call.
 */
typedef enum {
  /**
   * It was done.
   */
  DENREI_OK = 0,
  /**
   * Nothing was there within the time given.
   */
  DENREI_TIMEOUT = 1,
  /**
   * An argument cannot be: a null pointer, text that is not UTF-8, an address that is none.
   */
  DENREI_INVALID = 2,
  /**
   * A setting does not exist or cannot have this value.
   */
  DENREI_CONFIG = 3,
  /**
   * The system refused something: a port in use, no descriptors left, no memory for a copy.
   */
  DENREI_SYSTEM = 4,
  /**
   * No such peer, or no longer.
   */
  DENREI_UNKNOWN_PEER = 5,
  /**
   * The queue to the peer is full and the time given was too short.
   */
  DENREI_WOULD_BLOCK = 6,
  /**
   * The message is larger than the receiver takes.
   */
  DENREI_TOO_LARGE = 7,
  /**
   * The channel's number is not below the limit of both sides.
   */
  DENREI_NO_CHANNEL = 8,
  /**
   * This side has closed writing, or the peer reading; of a call that receives: the peer has closed writing.
   */
  DENREI_CLOSED = 9,
  /**
   * The session is over.
   */
  DENREI_PEER_LOST = 10,
  /**
   * No such offer waits.
   */
  DENREI_NO_OFFER = 11,
  /**
   * The address table is full, or there are too many groups.
   */
  DENREI_TOO_MANY_PEERS = 12,
  /**
   * Without a cluster key a node opens on loopback only.
   */
  DENREI_EXPOSED = 13,
  /**
   * A buffer of the caller's is too small.
   */
  DENREI_BUFFER = 14,
  /**
   * A fault of the library's own. Please report it with its message.
   */
  DENREI_INTERNAL = 15,
  /**
   * A key file is not there, is none, or can be read by others.
   */
  DENREI_KEY = 16,
  /**
   * The caller broke it off.
   */
  DENREI_CANCELLED = 17,
  /**
   * A cast came to nothing: what is sent or received cannot be, or the sender has given up.
   */
  DENREI_CAST = 18,
} denrei_code;

/**
 * What happened.
 */
typedef enum {
  /**
   * A kind that this version of the interface has no name for.
   */
  DENREI_EVENT_OTHER = 0,
  /**
   * A peer answered, or opened a session to this node.
   */
  DENREI_EVENT_CONNECTED = 1,
  /**
   * A message is in the receiver's memory. Channel, number.
   */
  DENREI_EVENT_ACKNOWLEDGED = 2,
  /**
   * A message was taken by the receiving application. Channel, number.
   */
  DENREI_EVENT_DELIVERED = 3,
  /**
   * A peer offers a large message: denrei_accept or denrei_refuse. Channel, number, bytes. The event stands in the
   * message's place: what follows on the channel does not wait for its bytes.
   */
  DENREI_EVENT_OFFERED = 4,
  /**
   * The receiver refused a message. Channel, number.
   */
  DENREI_EVENT_REFUSED = 5,
  /**
   * The answer to denrei_request_status: what the peer has not taken yet. Number is the
   * request's; bytes, and messages in denrei_event_count.
   */
  DENREI_EVENT_STATUS = 6,
  /**
   * The peer will send no more: all it sent has been received.
   */
  DENREI_EVENT_DONE_WRITING = 7,
  /**
   * The peer wants no more. Text, and the messages that were dropped.
   */
  DENREI_EVENT_DONE_READING = 8,
  /**
   * The session is over. Reason, code, text, and the messages that may be lost, see denrei_event_messages.
   */
  DENREI_EVENT_PEER_LOST = 9,
  /**
   * A message of denrei_send_within was dropped because it was late, or would be. What seemed lost of it may only be
   * slow: then it arrives all the same. Channel, number.
   */
  DENREI_EVENT_EXPIRED = 10,
  /**
   * An offer was given up by its sender: it will not arrive. Channel, number.
   */
  DENREI_EVENT_WITHDRAWN = 11,
  /**
   * The peer has set how fast it may be sent to: denrei_event_bytes is the rate, bytes/s, and
   * denrei_event_count the burst, bytes; 0 is no limit.
   */
  DENREI_EVENT_RATE_SET = 12,
} denrei_event_kind;

/**
 * Why a session is over.
 */
typedef enum {
  /**
   * For a reason that this version of the interface has no name for; see the text.
   */
  DENREI_LOST_OTHER = 0,
  /**
   * Both sides closed in order.
   */
  DENREI_LOST_CLOSED = 1,
  /**
   * This side aborted it.
   */
  DENREI_LOST_ABORTED = 2,
  /**
   * The peer ended it, with a code.
   */
  DENREI_LOST_ENDED = 3,
  /**
   * Nobody answered within the connect timeout.
   */
  DENREI_LOST_NO_ANSWER = 4,
  /**
   * Silent for longer than the failure timeout.
   */
  DENREI_LOST_TIMED_OUT = 5,
  /**
   * Its process was started again.
   */
  DENREI_LOST_RESTARTED = 6,
  /**
   * It does not know the session any more.
   */
  DENREI_LOST_FORGOTTEN = 7,
  /**
   * It speaks other versions of the protocol.
   */
  DENREI_LOST_VERSION = 8,
  /**
   * It broke the protocol.
   */
  DENREI_LOST_VIOLATION = 9,
  /**
   * Nobody is at its port any more, as its host says.
   */
  DENREI_LOST_GONE = 10,
} denrei_lost_reason;

/**
 * Where a session is in its life.
 */
typedef enum {
  /**
   * FIRST sent, no answer yet.
   */
  DENREI_PHASE_OPENING = 0,
  /**
   * FIRST received and answered; the answer has not been confirmed.
   */
  DENREI_PHASE_ANSWERING = 1,
  /**
   * Open in both directions.
   */
  DENREI_PHASE_OPEN = 2,
  /**
   * Closing in order.
   */
  DENREI_PHASE_CLOSING = 3,
  /**
   * Over; kept until the application has read what it received.
   */
  DENREI_PHASE_OVER = 4,
} denrei_phase;

/**
 * What happened in a group, at its opener.
 */
typedef enum {
  /**
   * A kind that this version of the interface has no name for; see the text.
   */
  DENREI_GROUP_OTHER = 0,
  /**
   * A member has begun to take part; `number` is the first message it gets.
   */
  DENREI_GROUP_JOINED = 1,
  /**
   * A member is one no longer; the text says why.
   */
  DENREI_GROUP_DEPARTED = 2,
  /**
   * A slow member is served by itself from now on.
   */
  DENREI_GROUP_LAGGING = 3,
  /**
   * A member that lagged is back with the others.
   */
  DENREI_GROUP_CAUGHT_UP = 4,
  /**
   * Every member has everything and has said so.
   */
  DENREI_GROUP_CLOSED = 5,
} denrei_group_event_kind;

/**
 * How a member is reached.
 */
typedef enum {
  /**
   * By the group's address.
   */
  DENREI_PATH_MULTICAST = 0,
  /**
   * By the session with it.
   */
  DENREI_PATH_UNICAST = 1,
  /**
   * By another member.
   */
  DENREI_PATH_RELAY = 2,
} denrei_member_path;

/**
 * Where a receiver of a cast is.
 */
typedef enum {
  /**
   * It was not heard of, or not since it vanished.
   */
  DENREI_CAST_ABSENT = 0,
  /**
   * It is there, and has not said what it misses.
   */
  DENREI_CAST_INVITED = 1,
  /**
   * It gets what it misses.
   */
  DENREI_CAST_RECEIVING = 2,
  /**
   * It has everything, verified, in its place.
   */
  DENREI_CAST_COMPLETE = 3,
  /**
   * It has given up, or was given up.
   */
  DENREI_CAST_FAILED = 4,
} denrei_cast_stage;

/**
 * What shall be reported about a message later, as an event.
 */
typedef enum {
  /**
   * Nothing, unless the peer is lost.
   */
  DENREI_REPORT_NOTHING = 0,
  /**
   * DENREI_EVENT_ACKNOWLEDGED: the receiving process has it in its memory.
   */
  DENREI_REPORT_ACKNOWLEDGED = 1,
  /**
   * DENREI_EVENT_DELIVERED: the receiving application has taken it.
   */
  DENREI_REPORT_DELIVERED = 2,
} denrei_completion;

/**
 * How to send or receive a cast, made by denrei_cast_options_new.
 */
typedef struct denrei_cast_options denrei_cast_options;

/**
 * How sending went. Give it back with denrei_cast_report_free.
 */
typedef struct denrei_cast_report denrei_cast_report;

/**
 * A set of nodes that work together. Rank 0 is the first.
 */
typedef struct denrei_collective denrei_collective;

/**
 * Settings of a node, made by denrei_config_new.
 */
typedef struct denrei_config denrei_config;

/**
 * Something that happened. Give it back with denrei_event_free.
 */
typedef struct denrei_event denrei_event;

/**
 * The opener's end of a group: what is sent to it reaches all its members.
 */
typedef struct denrei_group denrei_group;

/**
 * Waits for openers who name this node as a member.
 */
typedef struct denrei_group_listener denrei_group_listener;

/**
 * Options of a group, made by denrei_group_options_new.
 */
typedef struct denrei_group_options denrei_group_options;

/**
 * The member's end of a group.
 */
typedef struct denrei_membership denrei_membership;

/**
 * A message received. Give it back with denrei_message_free.
 */
typedef struct denrei_message denrei_message;

/**
 * One UDP port, and all the peers that are spoken to through it.
 */
typedef struct denrei_node denrei_node;

/**
 * What several ranks had, in their order. Give it back with denrei_parts_free.
 */
typedef struct denrei_parts denrei_parts;

/**
 * A running relay.
 */
typedef struct denrei_relay denrei_relay;

/**
 * Names a peer of a node.
 */
typedef uint64_t denrei_peer;

/**
 * Called once with `context` when a message's memory is no longer needed. It may be called by any
 * thread, also before the call that passed it returns, and must not call the node, nor wait for a lock that who
 * calls the node has.
 */
typedef void (*denrei_release)(void *context);

/**
 * Whether messages of a peer's channel shall be taken; called with the `context` of denrei_drain, and
 * must not call the node.
 */
typedef bool (*denrei_wanted)(void *context, denrei_peer peer, uint16_t channel);

/**
 * A message or an event: the other pointer is NULL.
 */
typedef struct {
  /**
   * A message, to be freed.
   */
  denrei_message *message;
  /**
   * An event, to be freed.
   */
  denrei_event *event;
} denrei_incoming;

/**
 * A message that was sent: its place in a channel's sequence.
 */
typedef struct {
  /**
   * The channel.
   */
  uint16_t channel;
  /**
   * Counts the channel's messages from 0.
   */
  uint64_t number;
} denrei_message_id;

/**
 * How fast one side may send: a mean, and what may come in a row.
 */
typedef struct {
  /**
   * Mean rate, bytes/s; 0 is no data at all, 1 PiB/s (2 to the power of 50) no limit.
   */
  uint64_t bytes_per_s;
  /**
   * Bytes that may come in a row; 0 is no limit whatever the rate is, unless that is 0.
   */
  uint64_t burst_bytes;
} denrei_rate;

/**
 * A peer's flow state, as of now.
 */
typedef struct {
  /**
   * The peer.
   */
  denrei_peer peer;
  /**
   * Which start of its process it is, 0 before it was heard.
   */
  uint64_t incarnation;
  /**
   * Where the session is in its life.
   */
  denrei_phase phase;
  /**
   * Smoothed round-trip time, ns; 0 before the first sample.
   */
  uint64_t srtt_ns;
  /**
   * Smallest round-trip time seen, ns; 0 before the first sample.
   */
  uint64_t min_rtt_ns;
  /**
   * Mean deviation of the round-trip time, ns.
   */
  uint64_t rtt_var_ns;
  /**
   * Congestion window, bytes.
   */
  uint64_t window_bytes;
  /**
   * Sent, neither acknowledged nor known lost, bytes.
   */
  uint64_t in_flight_bytes;
  /**
   * Bytes that may be sent unasked on channel 0 before its credit is used up.
   */
  uint64_t credit_bytes;
  /**
   * Messages that are not acknowledged.
   */
  uint64_t queued_messages;
  /**
   * Bytes of messages that are not acknowledged.
   */
  uint64_t queued_bytes;
  /**
   * Received bytes that the application has not taken.
   */
  uint64_t unread_bytes;
  /**
   * Largest datagram the path is known to carry, bytes.
   */
  uint16_t datagram_bytes;
  /**
   * Packets sent since the session began.
   */
  uint64_t packets_sent;
  /**
   * Packets received and processed.
   */
  uint64_t packets_received;
  /**
   * Bytes sent, UDP payload.
   */
  uint64_t bytes_sent;
  /**
   * Bytes received, UDP payload.
   */
  uint64_t bytes_received;
  /**
   * Messages taken from the application.
   */
  uint64_t messages_sent;
  /**
   * Messages handed to the application.
   */
  uint64_t messages_received;
  /**
   * Packets declared lost.
   */
  uint64_t packets_lost;
  /**
   * Fragments and messages sent again.
   */
  uint64_t retransmissions;
  /**
   * Tail probes and timeouts fired.
   */
  uint64_t probes;
  /**
   * Packets received twice.
   */
  uint64_t duplicates;
  /**
   * Packets that came back marked with congestion.
   */
  uint64_t ecn_marks;
  /**
   * Recoveries started: losses of what was sent after the recovery before had begun.
   */
  uint64_t recoveries;
  /**
   * Packets dropped because the peer sent more than it was told it may, and requests that say so.
   */
  uint64_t excess;
  /**
   * How fast this side sends to the peer: what the peer has set, or what this side asked for.
   */
  denrei_rate rate;
  /**
   * How fast the peer may send, as set by this side; without a limit if it was never told.
   */
  denrei_rate rate_set;
  /**
   * Whether `rate_set` was told.
   */
  bool has_rate_set;
  /**
   * How fast the peer would send by itself.
   */
  denrei_rate rate_requested;
  /**
   * The peer's share of what this side can receive (denrei_set_weight).
   */
  uint32_t weight;
} denrei_flow_state;

/**
 * What happened on a node's port that belongs to no peer, and its system calls.
 */
typedef struct {
  /**
   * Datagrams handled, good or bad.
   */
  uint64_t datagrams;
  /**
   * No packet of this protocol.
   */
  uint64_t malformed;
  /**
   * Checksum or authentication failed.
   */
  uint64_t corrupted;
  /**
   * A token nobody has, or from the wrong address.
   */
  uint64_t unknown_session;
  /**
   * Another version of the protocol.
   */
  uint64_t foreign_version;
  /**
   * Sessions turned away because there are as many peers, or as many that have not shown that they are at
   * their address, as there may be. They come again.
   */
  uint64_t refused_sessions;
  /**
   * System calls that sent.
   */
  uint64_t send_calls;
  /**
   * System calls that received.
   */
  uint64_t recv_calls;
  /**
   * Bytes sent.
   */
  uint64_t bytes_sent;
  /**
   * Bytes received.
   */
  uint64_t bytes_received;
  /**
   * Times that several peers together sent more than arrived, and were told limits from then on.
   */
  uint64_t crowds;
  /**
   * Answers to strangers not sent because too many were waiting.
   */
  uint64_t suppressed_replies;
  /**
   * Openings made with another cluster key, forged, or damaged.
   */
  uint64_t strange_keys;
  /**
   * Peers with the cluster key whose identity is not allowed.
   */
  uint64_t strangers;
  /**
   * Plain packets, which a node with a cluster key does not take.
   */
  uint64_t unsealed;
  /**
   * Openings that only a node with a cluster key can read.
   */
  uint64_t sealed_unread;
  /**
   * Openings dropped because their source or their session had brought too much.
   */
  uint64_t limited;
  /**
   * Those who were asked to prove their address first.
   */
  uint64_t retries;
  /**
   * Datagrams sent.
   */
  uint64_t datagrams_sent;
  /**
   * Datagrams that the host refused to send.
   */
  uint64_t send_dropped;
  /**
   * Times that more was sent than arrived, and rates were learnt from then on.
   */
  uint64_t overruns;
  /**
   * Packets of groups that had come before.
   */
  uint64_t repeated_group_packets;
  /**
   * Datagrams received and handed on.
   */
  uint64_t datagrams_received;
  /**
   * Trains sent in one call by segmentation offload.
   */
  uint64_t sent_trains;
  /**
   * Send calls that found the send buffer full.
   */
  uint64_t send_would_block;
  /**
   * Trains that offload refused and that were sent segment by segment.
   */
  uint64_t gso_fallbacks;
  /**
   * Times that offload was switched off for a path, until it is tried again.
   */
  uint64_t gso_disabled;
  /**
   * Receive calls that brought a train of several datagrams.
   */
  uint64_t recv_trains;
  /**
   * Times a socket was switched to trains or to lone datagrams.
   */
  uint64_t gro_switches;
  /**
   * Receive calls that found nothing.
   */
  uint64_t recv_would_block;
  /**
   * Errors reported by receive calls, such as a peer's "port unreachable".
   */
  uint64_t recv_errors;
  /**
   * Datagrams or trains larger than the buffer; what was cut is discarded.
   */
  uint64_t recv_truncated;
  /**
   * Connected sockets opened.
   */
  uint64_t peers_connected;
  /**
   * Connected sockets closed.
   */
  uint64_t peers_disconnected;
  /**
   * Datagrams received into the memory of the message that they were expected to carry a part of.
   */
  uint64_t recv_landed;
  /**
   * Events that were dropped because the application took none while 65,536 newer ones came, or 1,048,576 offers and
   * what it asked for as completions of messages.
   */
  uint64_t dropped_events;
} denrei_counters;

/**
 * What a node's port can do on this host.
 */
typedef struct {
  /**
   * How system calls are made: "batched" or "plain".
   */
  char backend[16];
  /**
   * Trains of datagrams are sent in one call.
   */
  bool gso;
  /**
   * Trains of datagrams are received in one call.
   */
  bool gro;
  /**
   * Marks of congestion are sent and read.
   */
  bool ecn;
  /**
   * Paths on which `gso` was found not to work although the kernel announced it.
   */
  uintptr_t gso_disabled_paths;
  /**
   * Usable receive buffer, bytes.
   */
  uintptr_t recv_buffer_bytes;
  /**
   * Usable send buffer, bytes.
   */
  uintptr_t send_buffer_bytes;
  /**
   * Most datagrams in a train that is sent.
   */
  uintptr_t max_segments;
} denrei_capabilities;

/**
 * Something that happened in a group.
 */
typedef struct {
  /**
   * What.
   */
  denrei_group_event_kind kind;
  /**
   * To which member.
   */
  uint32_t member;
  /**
   * The first message it gets, or the last one it has acknowledged.
   */
  uint64_t number;
  /**
   * Whether `number` says something: it does not if nothing was acknowledged.
   */
  bool has_number;
  /**
   * The member's address; "" if it is about none.
   */
  char address[64];
  /**
   * For people: why, cut at 191 bytes.
   */
  char text[192];
} denrei_group_event;

/**
 * A group, as its opener sees it: values are minima over the members.
 */
typedef struct {
  /**
   * Whether it is open.
   */
  bool open;
  /**
   * Messages acknowledged by all.
   */
  uint64_t messages_acknowledged;
  /**
   * Messages taken from the application.
   */
  uint64_t messages_sent;
  /**
   * Bytes of messages not acknowledged by all.
   */
  uint64_t queued_bytes;
  /**
   * What may still be begun before the member with the least room has no more, bytes.
   */
  uint64_t credit_bytes;
  /**
   * Bytes that may be under way.
   */
  uint64_t window_bytes;
  /**
   * Packets sent to the group's address; none with a tree, whose parts go by sessions: `unicast_symbols`
   * counts them, and these sessions' flow the bytes.
   */
  uint64_t packets_sent;
  /**
   * Their bytes.
   */
  uint64_t bytes_sent;
  /**
   * Parts sent by unicast, repairs included.
   */
  uint64_t unicast_symbols;
  /**
   * Parts sent again to the group's address.
   */
  uint64_t multicast_repairs;
  /**
   * Parts sent again to one member.
   */
  uint64_t unicast_repairs;
  /**
   * Parities sent to the group's address.
   */
  uint64_t parity_sent;
  /**
   * Reports of members taken in.
   */
  uint64_t reports;
  /**
   * Those of them that missed something.
   */
  uint64_t reports_with_gaps;
  /**
   * Questions asked.
   */
  uint64_t polls;
  /**
   * Parts sent to the group's address for the first time.
   */
  uint64_t symbols_sent;
  /**
   * Their bytes, UDP payload: what has to be sent where nothing is lost.
   */
  uint64_t symbol_bytes;
} denrei_group_state;

/**
 * A member, as the opener sees it.
 */
typedef struct {
  /**
   * Its id.
   */
  uint32_t member;
  /**
   * How it is reached.
   */
  denrei_member_path path;
  /**
   * Whether it takes part now.
   */
  bool active;
  /**
   * Whether it is served by itself because it is slow.
   */
  bool lagging;
  /**
   * Its address.
   */
  char address[64];
  /**
   * Messages it has acknowledged.
   */
  uint64_t messages_acknowledged;
  /**
   * Parts of messages sent that it has not acknowledged.
   */
  uint64_t symbols_behind;
  /**
   * Parts it reported missing.
   */
  uint64_t symbols_missed;
  /**
   * Smoothed round-trip time, ns; 0 before the first sample.
   */
  uint64_t srtt_ns;
  /**
   * Share of packets sent to the group's address that do not reach it, 0 to 1; negative if not known.
   */
  double loss;
} denrei_member_state;

/**
 * What a member has counted since it joined.
 */
typedef struct {
  /**
   * Bytes of the group's packets that came, UDP payload.
   */
  uint64_t bytes_received;
  /**
   * Reports sent to the opener.
   */
  uint64_t reports;
  /**
   * Parts of messages that came twice.
   */
  uint64_t duplicates;
  /**
   * Parities received.
   */
  uint64_t parities;
  /**
   * Parts of messages restored from parities.
   */
  uint64_t restored;
} denrei_membership_counters;

/**
 * Joins `next` to `accumulated`, which has the same `length`, in place; called with the `context` of
 * denrei_collective_reduce, and must not call the set.
 */
typedef void (*denrei_join)(void *context, void *accumulated, const void *next, uintptr_t length);

/**
 * A receiver of a cast, as its sender sees it.
 */
typedef struct {
  /**
   * Where it is.
   */
  denrei_cast_stage stage;
  /**
   * Its address.
   */
  char address[64];
  /**
   * What it calls itself, cut to fit.
   */
  char name[64];
  /**
   * Why it failed or vanished, cut to fit.
   */
  char reason[256];
  /**
   * Bytes that it has; in a report 0.
   */
  uint64_t bytes;
  /**
   * Bytes that it had before; in progress 0.
   */
  uint64_t resumed_bytes;
  /**
   * In a report: until it had everything, from the first piece sent; 0 if it has not.
   */
  uint64_t took_us;
} denrei_cast_member;

/**
 * How a cast goes.
 */
typedef struct {
  /**
   * Bytes sent; at a receiver, bytes that are here.
   */
  uint64_t bytes;
  /**
   * Bytes of all there is; UINT64_MAX if that is not known.
   */
  uint64_t total_bytes;
  /**
   * At the sender: since pieces began to be sent.
   */
  uint64_t elapsed_us;
  /**
   * At a receiver: the sender; empty while there is none.
   */
  char sender[64];
  /**
   * At the sender: the receivers, valid during the call.
   */
  const denrei_cast_member *members;
  /**
   * How many they are.
   */
  uintptr_t member_count;
  /**
   * What the user should know, a sentence each, valid during the call: what was left out, casts that
   * cannot be heard.
   */
  const char *const *warnings;
  /**
   * How many they are.
   */
  uintptr_t warning_count;
} denrei_cast_progress;

/**
 * Called about five times a second by the thread that sends or receives; false breaks the cast off.
 */
typedef bool (*denrei_cast_watch)(void *context, const denrei_cast_progress *progress);

/**
 * How sending went, in numbers.
 */
typedef struct {
  /**
   * Whether every receiver has everything.
   */
  bool complete;
  /**
   * The cast's name, its first octets.
   */
  uint64_t cast;
  /**
   * From the first piece until the last receiver had everything.
   */
  uint64_t took_us;
  /**
   * Bytes of what was sent.
   */
  uint64_t bytes;
  /**
   * Bytes put onto the network, with headers.
   */
  uint64_t wire_bytes;
  /**
   * Datagrams put onto the network.
   */
  uint64_t wire_packets;
  /**
   * Sent again to the whole group.
   */
  uint64_t multicast_repairs;
  /**
   * Sent again to single receivers.
   */
  uint64_t unicast_repairs;
  /**
   * How many receivers there were.
   */
  uintptr_t member_count;
} denrei_cast_summary;

/**
 * How receiving went.
 */
typedef struct {
  /**
   * The cast's name, its first octets.
   */
  uint64_t cast;
  /**
   * The sender's address.
   */
  char sender[64];
  /**
   * From the offer until everything was in its place.
   */
  uint64_t took_us;
  /**
   * Bytes of all that was sent.
   */
  uint64_t bytes;
  /**
   * Of these, those that were here before.
   */
  uint64_t resumed_bytes;
  /**
   * Those that came now.
   */
  uint64_t new_bytes;
  /**
   * Files.
   */
  uint64_t files;
  /**
   * Directories.
   */
  uint64_t directories;
} denrei_cast_receipt;

/**
 * How a relay works; what is 0 or NULL has its default.
 */
typedef struct {
  /**
   * Local IP address towards the targets: any if NULL, and loopback towards loopback.
   */
  const char *from;
  /**
   * What a pair may hold in each direction, and the largest message that goes through, bytes:
   * 64 KiB to 1 GiB; 64 MiB.
   */
  uint64_t pair_bytes;
  /**
   * How many pairs there may be at a time: 1 to 1024; 64.
   */
  uintptr_t max_pairs;
} denrei_relay_options;

/**
 * A sender and the peer beyond the relay that it speaks to.
 */
typedef struct {
  /**
   * The sender's address.
   */
  char near[64];
  /**
   * The peer's address.
   */
  char target[64];
  /**
   * Messages forwarded to the target.
   */
  uint64_t forwarded_messages;
  /**
   * Bytes of them.
   */
  uint64_t forwarded_bytes;
  /**
   * Messages forwarded back.
   */
  uint64_t returned_messages;
  /**
   * Bytes held on the way to the target.
   */
  uint64_t held_bytes;
  /**
   * Times that the sender's rate was lowered or stopped.
   */
  uint64_t lowered;
} denrei_relay_pair;

/**
 * No peer has this name.
 */
#define DENREI_NO_PEER UINT64_MAX

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What the last call of this thread that failed has to say, for people. Valid until the next call
 * of this thread fails; empty if none has. What C runs when a thread or the program has ended, destructors of a
 * thread's data and functions of atexit, may call everything, but the words of a failure are not kept for it.
 */
const char *denrei_error_message(void);

/**
 * Settings that are right for a LAN and safe on the internet.
 */
denrei_config *denrei_config_new(void);

/**
 * Gives settings back. Nodes made with them keep theirs.
 *
 * `config` is NULL or comes from denrei_config_new, and is not used again.
 */
void denrei_config_free(denrei_config *config);

/**
 * Sets one setting by its name, such as "failure_timeout" to "5s", "channel_credit_bytes" to
 * "1MiB", "drive" to "thread". An unknown name and an impossible value are refused with
 * DENREI_CONFIG and a message that lists what is possible.
 *
 * `config` comes from denrei_config_new; `name` and `value` are strings.
 */
denrei_code denrei_config_set(denrei_config *config, const char *name, const char *value);

/**
 * Takes the cluster key from a file that `denrei keygen` has made. Without this a node takes the one
 * that DENREI_KEY_FILE names, if it is set.
 *
 * `config` comes from denrei_config_new, `path` is a string.
 */
denrei_code denrei_config_key_file(denrei_config *config,
                                   const char *path);

/**
 * Takes this node's identity from a file that `denrei keygen --identity` has made, and the public
 * identities to speak with from a list, one a line.
 *
 * `config` comes from denrei_config_new, `identity` and `allow_list` are strings.
 */
denrei_code denrei_config_identity(denrei_config *config,
                                   const char *identity,
                                   const char *allow_list);

/**
 * Whether a node could be made with these settings; if not, the message says what to change.
 *
 * `config` comes from denrei_config_new.
 */
denrei_code denrei_config_check(const denrei_config *config);

/**
 * Names of all settings, in turn from index 0; NULL after the last.
 */
const char *denrei_setting_name(uintptr_t index);

/**
 * Opens a UDP port on `address` (port 0: any free one) with settings, NULL for the defaults.
 *
 * `address` is a string, `config` NULL or settings, `node` a place for a pointer.
 */
denrei_code denrei_node_open(const char *address, const denrei_config *config, denrei_node **node);

/**
 * Closes a node: peers are told that it is gone, and what was not acknowledged is lost, so call
 * denrei_flush before, or denrei_close and wait for DENREI_EVENT_PEER_LOST. Messages and events taken
 * from it stay valid. Groups, listeners, memberships and sets need the node: while there is one of them it stays
 * open, with its port and its sessions, so give them back before.
 *
 * `node` is NULL or comes from denrei_node_open, and no thread uses it any more.
 */
void denrei_node_free(denrei_node *node);

/**
 * Writes the address that a node has opened, as text that ends with NUL, into `buffer` of `length`
 * bytes; 64 are always enough.
 *
 * `node` is a node, `buffer` has `length` bytes.
 */
denrei_code denrei_node_address(const denrei_node *node, char *buffer, uintptr_t length);

/**
 * Which start of this node this is: peers see another number after a restart. 0 for NULL.
 *
 * `node` is NULL or a node.
 */
uint64_t denrei_node_incarnation(const denrei_node *node);

/**
 * A descriptor for an event loop: readable when there may be messages or events to take. Then call
 * denrei_node_clear *first*, and take until there is nothing left. Do not read or close it. Starts
 * the node's background thread. -1, with a message, if the process is out of descriptors.
 *
 * `node` is a node.
 */
int denrei_node_fd(const denrei_node *node);

/**
 * Makes the descriptor of denrei_node_fd unreadable until there is news again.
 *
 * `node` is a node.
 */
denrei_code denrei_node_clear(const denrei_node *node);

/**
 * Does what is due now (receive, acknowledge, repeat) without waiting: for programs in drive
 * "inline" that compute for long.
 *
 * `node` is a node.
 */
denrei_code denrei_node_poll(const denrei_node *node);

/**
 * Writes the `index`-th thing that the user should know about this host, from 0, one sentence, into
 * `buffer`. DENREI_TIMEOUT after the last.
 *
 * `node` is a node, `buffer` has `length` bytes.
 */
denrei_code denrei_node_warning(const denrei_node *node,
                                uintptr_t index,
                                char *buffer,
                                uintptr_t length);

/**
 * Opens a session with the node at `address`, or names the one there is. Returns at once: messages
 * may be sent right away. If nobody answers within the connect timeout, an event says so.
 *
 * `node` is a node, `address` a string, `peer` a place for a number.
 */
denrei_code denrei_connect(const denrei_node *node, const char *address, denrei_peer *peer);

/**
 * The live peer at an address; DENREI_UNKNOWN_PEER if there is none.
 *
 * As for denrei_connect.
 */
denrei_code denrei_peer_at(const denrei_node *node, const char *address, denrei_peer *peer);

/**
 * Says that this side will send no more to `peer`; what is queued is still delivered. When both
 * sides have done so the session ends.
 *
 * `node` is a node.
 */
denrei_code denrei_close_write(const denrei_node *node, denrei_peer peer);

/**
 * Says that this side wants no more from `peer`; what was not taken is dropped.
 *
 * `node` is a node.
 */
denrei_code denrei_close_read(const denrei_node *node, denrei_peer peer);

/**
 * Ends the session with `peer` in order, as soon as everything queued here is acknowledged: the peer's application may
 * take it after that, which DENREI_EVENT_DELIVERED then does not report. An event says when. What the peer has not
 * brought here by then is cut off, and named to it: where both have more to say, each calls denrei_close_write.
 *
 * `node` is a node.
 */
denrei_code denrei_close(const denrei_node *node,
                         denrei_peer peer);

/**
 * Ends the session with `peer` at once. `code` (0x8000 and up are the application's) and `reason`
 * (cut at 128 bytes) reach the peer.
 *
 * `node` is a node, `reason` a string.
 */
denrei_code denrei_abort(const denrei_node *node,
                         denrei_peer peer,
                         uint16_t code,
                         const char *reason);

/**
 * Sends a message, a copy of `length` bytes at `data`; waits while the queue to the peer is full.
 *
 * `node` is a node, `data` has `length` bytes.
 */
denrei_code denrei_send(const denrei_node *node,
                        denrei_peer peer,
                        uint16_t channel,
                        const void *data,
                        uintptr_t length);

/**
 * Like denrei_send, reports later what `completion` (a denrei_completion) asks for, waits at most `timeout_us`, and puts
 * the message's number in its channel into `number` unless that is NULL.
 *
 * As for denrei_send; `number` is NULL or a place for a number.
 */
denrei_code denrei_send_with(const denrei_node *node,
                             denrei_peer peer,
                             uint16_t channel,
                             const void *data,
                             uintptr_t length,
                             unsigned int completion,
                             int64_t timeout_us,
                             uint64_t *number);

/**
 * Like denrei_send_with, without a copy: the memory must stay as it is until `release` is called
 * with `context`, which happens exactly once, also when the call fails.
 *
 * As for denrei_send_with; the memory stays valid and unchanged until `release` is called.
 */
denrei_code denrei_send_lent(const denrei_node *node,
                             denrei_peer peer,
                             uint16_t channel,
                             const void *data,
                             uintptr_t length,
                             denrei_release release,
                             void *context,
                             unsigned int completion,
                             int64_t timeout_us,
                             uint64_t *number);

/**
 * Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
 *
 * `node` is a node.
 */
denrei_code denrei_set_priority(const denrei_node *node,
                                denrei_peer peer,
                                uint16_t channel,
                                uint8_t priority);

/**
 * Waits until everything sent so far to `peer` is acknowledged. DENREI_TIMEOUT if it is not within
 * the time given; DENREI_PEER_LOST if the peer is lost before, DENREI_UNKNOWN_PEER if it is long gone.
 *
 * `node` is a node.
 */
denrei_code denrei_flush(const denrei_node *node,
                         denrei_peer peer,
                         int64_t timeout_us);

/**
 * Queues a message, a copy of `length` bytes at `data`, if the queue to the peer has room
 * (DENREI_WOULD_BLOCK if not), and leaves it to denrei_send_queued, or to the next call that sends or
 * polls, to send it: who queues several at once pays for one system call. Never waits. As to
 * `completion` and `number`, see denrei_send_with.
 *
 * As for denrei_send_with.
 */
denrei_code denrei_queue(const denrei_node *node,
                         denrei_peer peer,
                         uint16_t channel,
                         const void *data,
                         uintptr_t length,
                         unsigned int completion,
                         uint64_t *number);

/**
 * Like denrei_queue, without a copy: see denrei_send_lent.
 *
 * As for denrei_send_lent.
 */
denrei_code denrei_queue_lent(const denrei_node *node,
                              denrei_peer peer,
                              uint16_t channel,
                              const void *data,
                              uintptr_t length,
                              denrei_release release,
                              void *context,
                              unsigned int completion,
                              uint64_t *number);

/**
 * Sends what denrei_queue has queued, and what else is due.
 *
 * `node` is a node.
 */
denrei_code denrei_send_queued(const denrei_node *node);

/**
 * Takes the next message of any peer and channel.
 *
 * `node` is a node, `message` a place for a pointer.
 */
denrei_code denrei_recv(const denrei_node *node, int64_t timeout_us, denrei_message **message);

/**
 * Takes the next message of one channel. Where all that it brought was taken and no more comes, it waits no longer, and
 * gives DENREI_PEER_LOST, DENREI_UNKNOWN_PEER or, where the peer has closed writing, DENREI_CLOSED; on a channel that there
 * cannot be, DENREI_NO_CHANNEL.
 *
 * As for denrei_recv.
 */
denrei_code denrei_recv_from(const denrei_node *node,
                             denrei_peer peer,
                             uint16_t channel,
                             int64_t timeout_us,
                             denrei_message **message);

/**
 * The bytes of a message; valid until it is freed. NULL for NULL.
 *
 * `message` is NULL or a message.
 */
const void *denrei_message_data(const denrei_message *message);

/**
 * How many bytes a message has. One that was accepted into memory of yours has none of its own.
 *
 * `message` is NULL or a message.
 */
uintptr_t denrei_message_length(const denrei_message *message);

/**
 * Who sent a message.
 *
 * `message` is NULL or a message.
 */
denrei_peer denrei_message_peer(const denrei_message *message);

/**
 * On which channel it came.
 *
 * `message` is NULL or a message.
 */
uint16_t denrei_message_channel(const denrei_message *message);

/**
 * Its number in the channel, from 0.
 *
 * `message` is NULL or a message.
 */
uint64_t denrei_message_number(const denrei_message *message);

/**
 * Gives a message back.
 *
 * `message` is NULL or a message that is not used again.
 */
void denrei_message_free(denrei_message *message);

/**
 * Accepts an offered message (DENREI_EVENT_OFFERED). With a buffer, its bytes are written there,
 * `length` at most (the rest is dropped), and the message that arrives later by denrei_recv has
 * none of its own; the buffer belongs to the node until that message has come or the peer is lost. A message that was
 * whole before that may still be there to take when denrei_event_next has brought the loss: take what there is first, as
 * its bytes are in the buffer alone. With NULL the node makes room itself.
 *
 * `node` is a node; `buffer` is NULL or has `length` bytes that nobody touches meanwhile.
 */
denrei_code denrei_accept(const denrei_node *node,
                          denrei_peer peer,
                          uint16_t channel,
                          uint64_t number,
                          void *buffer,
                          uintptr_t length);

/**
 * Like denrei_accept, and leaves it to denrei_send_queued, or to the next call that sends or polls,
 * to say so: several offers that are accepted at once are one packet.
 *
 * As for denrei_accept.
 */
denrei_code denrei_queue_accept(const denrei_node *node,
                                denrei_peer peer,
                                uint16_t channel,
                                uint64_t number,
                                void *buffer,
                                uintptr_t length);

/**
 * Refuses an offered message; its sender gets DENREI_EVENT_REFUSED.
 *
 * `node` is a node.
 */
denrei_code denrei_refuse(const denrei_node *node,
                          denrei_peer peer,
                          uint16_t channel,
                          uint64_t number);

/**
 * Takes the next message or the next event, whichever is there first; the other pointer becomes
 * NULL. Events come before messages that arrived with them, but that a peer will send no more (it is
 * done writing, or lost) comes after what it has sent.
 *
 * `node` is a node, `message` and `event` are places for pointers.
 */
denrei_code denrei_next(const denrei_node *node,
                        int64_t timeout_us,
                        denrei_message **message,
                        denrei_event **event);

/**
 * Takes events and messages that are here, in the order of denrei_next, into up to `room` places, and
 * puts into `count` how many came. Messages of channels that `wanted` (NULL: all are) refuses stay, and by and by
 * their senders run out of credit. Never waits, and does not look at the socket: denrei_node_poll does,
 * and the node's thread. That nothing is here is no failure.
 *
 * `node` is a node, `wanted` may be called with `context` during the call, `incoming` has `room` places,
 * `count` is a place for a number.
 */
denrei_code denrei_drain(const denrei_node *node,
                         denrei_wanted wanted,
                         void *context,
                         denrei_incoming *incoming,
                         uintptr_t room,
                         uintptr_t *count);

/**
 * Waits until there is a message or an event to take, without taking it.
 *
 * `node` is a node.
 */
denrei_code denrei_wait_incoming(const denrei_node *node, int64_t timeout_us);

/**
 * Takes the next event. Messages have a queue of their own: those of a peer that came before it was lost may be there
 * still when this brings the loss. denrei_next has both in one order.
 *
 * `node` is a node, `event` a place for a pointer.
 */
denrei_code denrei_event_next(const denrei_node *node,
                              int64_t timeout_us,
                              denrei_event **event);

/**
 * What happened. DENREI_EVENT_OTHER for NULL.
 *
 * `event` is NULL or an event.
 */
denrei_event_kind denrei_event_get_kind(const denrei_event *event);

/**
 * With which peer.
 *
 * `event` is NULL or an event.
 */
denrei_peer denrei_event_peer(const denrei_event *event);

/**
 * The message it is about: channel and number, 0 if it is about none.
 *
 * `event` is NULL or an event.
 */
denrei_message_id denrei_event_message(const denrei_event *event);

/**
 * Bytes it is about, 0 if none.
 *
 * `event` is NULL or an event.
 */
uint64_t denrei_event_bytes(const denrei_event *event);

/**
 * How many messages it is about: of a status, or in denrei_event_messages.
 *
 * `event` is NULL or an event.
 */
uint64_t denrei_event_count(const denrei_event *event);

/**
 * The messages of which it is not known that they arrived, oldest first per channel, and in
 * `count` how many; valid until the event is freed. NULL if there are none. Among them are those that have arrived, but
 * follow one of them on its channel, which nobody is handed without it, unless DENREI_EVENT_ACKNOWLEDGED told of them;
 * and one that expired, if the peer may not know that.
 *
 * `event` is NULL or an event, `count` a place for a number.
 */
const denrei_message_id *denrei_event_messages(const denrei_event *event,
                                               uintptr_t *count);

/**
 * Why the session is over.
 *
 * `event` is NULL or an event.
 */
denrei_lost_reason denrei_event_reason(const denrei_event *event);

/**
 * The code with which the peer ended the session.
 *
 * `event` is NULL or an event.
 */
uint16_t denrei_event_code(const denrei_event *event);

/**
 * For people: the address of a peer that has come, the reason for which one is gone; "" otherwise.
 * Valid until the event is freed.
 *
 * `event` is NULL or an event.
 */
const char *denrei_event_text(const denrei_event *event);

/**
 * The address of a peer that has come or is gone; "" otherwise. Valid until the event is freed.
 *
 * `event` is NULL or an event.
 */
const char *denrei_event_address(const denrei_event *event);

/**
 * Gives an event back.
 *
 * `event` is NULL or an event that is not used again.
 */
void denrei_event_free(denrei_event *event);

/**
 * A peer's flow state.
 *
 * `node` is a node, `flow` a place for a denrei_flow_state.
 */
denrei_code denrei_flow(const denrei_node *node, denrei_peer peer, denrei_flow_state *flow);

/**
 * The address table: writes the flow states of up to `room` peers to `flows`, and to `count` how
 * many there are, which may be more. `flows` may be NULL if `room` is 0.
 *
 * `node` is a node, `flows` has `room` places, `count` is a place for a number.
 */
denrei_code denrei_peers(const denrei_node *node,
                         denrei_flow_state *flows,
                         uintptr_t room,
                         uintptr_t *count);

/**
 * Writes a peer's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
 *
 * `node` is a node, `buffer` has `length` bytes.
 */
denrei_code denrei_peer_address(const denrei_node *node,
                                denrei_peer peer,
                                char *buffer,
                                uintptr_t length);

/**
 * Asks a peer for its state now; DENREI_EVENT_STATUS brings it, with the number put into `request`
 * unless that is NULL. A request takes the place of one before it that has no answer yet.
 *
 * `node` is a node, `request` NULL or a place for a number.
 */
denrei_code denrei_request_status(const denrei_node *node, denrei_peer peer, uint32_t *request);

/**
 * A node's counters.
 *
 * `node` is a node, `counters` a place for a denrei_counters.
 */
denrei_code denrei_node_counters(const denrei_node *node, denrei_counters *counters);

/**
 * What a node's port can do.
 *
 * `node` is a node, `capabilities` a place for a denrei_capabilities.
 */
denrei_code denrei_node_capabilities(const denrei_node *node, denrei_capabilities *capabilities);

/**
 * Waits until a message is there, and says who sent it on which channel and how large it is, without
 * taking it.
 *
 * `node` is a node; `peer`, `channel` and `length` are NULL or places for what they are named after.
 */
denrei_code denrei_ready(const denrei_node *node,
                         int64_t timeout_us,
                         denrei_peer *peer,
                         uint16_t *channel,
                         uintptr_t *length);

/**
 * Waits until a message of `length` bytes may be sent to `peer` without waiting. Whether the message is too
 * large for the peer, or the peer takes no more or is lost, sending it tells.
 *
 * `node` is a node.
 */
denrei_code denrei_wait(const denrei_node *node,
                        denrei_peer peer,
                        uint64_t length,
                        int64_t timeout_us);

/**
 * Puts into `count` how many messages to `peer` are not acknowledged.
 *
 * `node` is a node, `count` a place for a number.
 */
denrei_code denrei_queue_length(const denrei_node *node, denrei_peer peer, uint64_t *count);

/**
 * Sends again, now, what was sent to `peer` longer ago than a round trip and is not acknowledged.
 * How many packets were given up for it goes into `packets` unless that is NULL.
 *
 * `node` is a node, `packets` NULL or a place for a number.
 */
denrei_code denrei_retransmit(const denrei_node *node, denrei_peer peer, uint64_t *packets);

/**
 * Sets a peer's share of what this node can receive, relative to the other peers': 1 to 10000, 100
 * if never set.
 *
 * It counts only while this node divides what comes: by grants, after packets of several peers were
 * lost or marked together, among peers that have about as much left to send; or with the setting
 * learn_rates by rates, once it is overrun or its host has a limit (host_bytes_per_s), among peers
 * whose rate denrei_set_rate has not set. Else each sends as fast as its own window and rate let
 * it, whatever its weight.
 *
 * `node` is a node.
 */
denrei_code denrei_set_weight(const denrei_node *node, denrei_peer peer, uint32_t weight);

/**
 * Sets how fast `peer` may send to this node: a mean rate in bytes/s (0: no data at all) and the
 * bytes that may come in a row. Give both: a burst of 0 lifts the limit whatever the rate is.
 *
 * `node` is a node.
 */
denrei_code denrei_set_rate(const denrei_node *node,
                            denrei_peer peer,
                            uint64_t bytes_per_s,
                            uint64_t burst_bytes);

/**
 * Sends a message that is worth nothing after `lifetime_us`: if it could not be sent by then, it is
 * dropped, the channel goes on without it, and DENREI_EVENT_EXPIRED says so; sooner where it cannot be sent in time any
 * more. So it is with one of which something is lost and cannot be sent again in time. Never waits.
 *
 * As for denrei_send_with.
 */
denrei_code denrei_send_within(const denrei_node *node,
                               denrei_peer peer,
                               uint16_t channel,
                               const void *data,
                               uintptr_t length,
                               unsigned int completion,
                               uint64_t lifetime_us,
                               uint64_t *number);

/**
 * Options with which all wait for the slowest, and multicast is used where it reaches members.
 */
denrei_group_options *denrei_group_options_new(void);

/**
 * Sets one option by its name, such as "policy" to "eject:2s", "backend" to "tree",
 * "history_bytes" to "1MiB". An unknown name and an impossible value are refused with DENREI_CONFIG
 * and a message that lists what is possible.
 *
 * `options` comes from denrei_group_options_new; `name` and `value` are strings.
 */
denrei_code denrei_group_options_set(denrei_group_options *options,
                                     const char *name,
                                     const char *value);

/**
 * Names of all options of groups, in turn from index 0; NULL after the last.
 */
const char *denrei_group_option_name(uintptr_t index);

/**
 * Gives options back. Groups opened with them keep theirs.
 *
 * `options` is NULL or comes from denrei_group_options_new, and is not used again.
 */
void denrei_group_options_free(denrei_group_options *options);

/**
 * Opens a group at a multicast `address`, such as "239.255.78.1:7411", with the nodes at `members`,
 * `count` addresses, and waits until every one takes part, for the option "open_timeout" at most
 * (DENREI_TIMEOUT then, and the message names those that are missing). `options` may be NULL.
 * Members call denrei_group_join before.
 *
 * `node` is a node, `address` a string, `members` has `count` strings, `options` is NULL or options,
 * `group` a place for a pointer.
 */
denrei_code denrei_group_open(const denrei_node *node,
                              const char *address,
                              const char *const *members,
                              uintptr_t count,
                              const denrei_group_options *options,
                              denrei_group **group);

/**
 * Sends a message, a copy of `length` bytes at `data`, to all members; waits while the queue is full,
 * at most `timeout_us`. Puts its number in the group into `number` unless that is NULL.
 *
 * `group` is a group, `data` has `length` bytes, `number` is NULL or a place for a number.
 */
denrei_code denrei_group_send(const denrei_group *group,
                              const void *data,
                              uintptr_t length,
                              int64_t timeout_us,
                              uint64_t *number);

/**
 * Like denrei_group_send, without a copy: `data` must not change until `release` is called with
 * `context`, which is done once, also if the call fails.
 *
 * As for denrei_group_send and denrei_release.
 */
denrei_code denrei_group_send_lent(const denrei_group *group,
                                   const void *data,
                                   uintptr_t length,
                                   denrei_release release,
                                   void *context,
                                   int64_t timeout_us,
                                   uint64_t *number);

/**
 * Waits until every member that counts has acknowledged everything sent so far; DENREI_TIMEOUT if not in time,
 * DENREI_PEER_LOST if no member is left, and not everything was acknowledged.
 *
 * `group` is a group.
 */
denrei_code denrei_group_flush(const denrei_group *group,
                               int64_t timeout_us);

/**
 * Ends the group in order: once all is sent members are told, and answer. DENREI_TIMEOUT if not all
 * have answered in time. The group is still to be freed.
 *
 * `group` is a group.
 */
denrei_code denrei_group_close(const denrei_group *group, int64_t timeout_us);

/**
 * Ends the group, if denrei_group_close has not, and gives it back.
 *
 * `group` is NULL or a group that is not used again.
 */
void denrei_group_free(denrei_group *group);

/**
 * The group's number, the same at all its members; 0 for NULL.
 *
 * `group` is NULL or a group.
 */
uint64_t denrei_group_id(const denrei_group *group);

/**
 * Makes the node at `address` a member, from the next message on, or with what the option
 * "history_bytes" has retained; DENREI_GROUP_JOINED says when it takes part, DENREI_GROUP_DEPARTED
 * that it does not: it refused, or did not answer within "open_timeout". Its id goes into `member`
 * unless that is NULL.
 *
 * `group` is a group, `address` a string, `member` NULL or a place for a number.
 */
denrei_code denrei_group_add_member(const denrei_group *group,
                                    const char *address,
                                    bool history,
                                    uint32_t *member);

/**
 * Removes a member.
 *
 * `group` is a group.
 */
denrei_code denrei_group_remove_member(const denrei_group *group, uint32_t member);

/**
 * Writes the group's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
 *
 * `group` is a group, `buffer` has `length` bytes.
 */
denrei_code denrei_group_address(const denrei_group *group,
                                 char *buffer,
                                 uintptr_t length);

/**
 * Takes the group's next event. DENREI_CLOSED once the group is over and all are taken: nothing happens to it any more.
 *
 * `group` is a group, `event` a place for an event.
 */
denrei_code denrei_group_event_next(const denrei_group *group,
                                    int64_t timeout_us,
                                    denrei_group_event *event);

/**
 * Puts the group's state into `state` and its members' into `members`, `room` at most, and how many
 * there are into `count`. Among them are the last 64 or so of those who are members no more, and not
 * `active`. Of a group that is over it is what there was at its end, and `open` is false.
 *
 * `group` is a group; `state` and `count` are NULL or places for what they are named after; `members`
 * is NULL, with `room` 0, or has `room` places.
 */
denrei_code denrei_group_status(const denrei_group *group,
                                denrei_group_state *state,
                                denrei_member_state *members,
                                uintptr_t room,
                                uintptr_t *count);

/**
 * Joins the multicast `address`: openers may from now on name this node as a member of groups
 * there, and denrei_group_accept brings the memberships.
 *
 * `node` is a node, `address` a string, `listener` a place for a pointer.
 */
denrei_code denrei_group_join(const denrei_node *node,
                              const char *address,
                              denrei_group_listener **listener);

/**
 * Waits for a group that this node is made a member of.
 *
 * `listener` is a listener, `membership` a place for a pointer.
 */
denrei_code denrei_group_accept(const denrei_group_listener *listener,
                                int64_t timeout_us,
                                denrei_membership **membership);

/**
 * Asks the node at `opener` to be made a member of its group at the listener's address, from the
 * next message on, or with what it has retained; denrei_group_accept brings the membership.
 *
 * `listener` is a listener, `opener` a string.
 */
denrei_code denrei_group_ask(const denrei_group_listener *listener,
                             const char *opener,
                             bool history);

/**
 * Writes the group's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
 *
 * `listener` is a listener, `buffer` has `length` bytes.
 */
denrei_code denrei_group_listener_address(const denrei_group_listener *listener,
                                          char *buffer,
                                          uintptr_t length);

/**
 * Whether the group's address itself is heard. It is not where the host has no multicast, or the node hears
 * as many addresses as it can, 63; groups come by unicast then.
 *
 * `listener` is NULL or a listener.
 */
bool denrei_group_listener_is_heard(const denrei_group_listener *listener);

/**
 * Stops waiting for openers; memberships stay.
 *
 * `listener` is NULL or a listener that is not used again.
 */
void denrei_group_listener_free(denrei_group_listener *listener);

/**
 * Takes the group's next message. Once all are taken: DENREI_CLOSED if the opener closed the group,
 * and everything has arrived; DENREI_PEER_LOST if this member was removed or the opener is gone.
 *
 * `membership` is a membership, `message` a place for a pointer.
 */
denrei_code denrei_membership_recv(const denrei_membership *membership,
                                   int64_t timeout_us,
                                   denrei_message **message);

/**
 * The group's number, the same at its opener; 0 for NULL.
 *
 * `membership` is NULL or a membership.
 */
uint64_t denrei_membership_group(const denrei_membership *membership);

/**
 * This member's id.
 *
 * `membership` is NULL or a membership.
 */
uint32_t denrei_membership_member(const denrei_membership *membership);

/**
 * Writes the opener's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
 *
 * `membership` is a membership, `buffer` has `length` bytes.
 */
denrei_code denrei_membership_opener(const denrei_membership *membership,
                                     char *buffer,
                                     uintptr_t length);

/**
 * Whether the membership is over, whatever is still to be taken: DENREI_OK while it goes on; as for
 * denrei_membership_recv, with a message that says why, once it is.
 *
 * `membership` is a membership.
 */
denrei_code denrei_membership_end(const denrei_membership *membership);

/**
 * A membership's counters. DENREI_CLOSED once the membership is over and forgotten.
 *
 * `membership` is a membership, `counters` a place for a denrei_membership_counters.
 */
denrei_code denrei_membership_count(const denrei_membership *membership,
                                    denrei_membership_counters *counters);

/**
 * Leaves the group, if it is not over, and gives the membership back.
 *
 * `membership` is NULL or a membership that is not used again.
 */
void denrei_membership_leave(denrei_membership *membership);

/**
 * Makes a set of the nodes at `addresses` (the same `count` addresses everywhere, with this node's
 * own among them), that speaks to all by a group at the multicast address `group`. All of them have
 * to call this within the time given. Operations are then called by all nodes in the same order.
 *
 * `node` is a node, `addresses` has `count` strings, `group` is a string, `set` a place for a pointer.
 */
denrei_code denrei_collective_open(const denrei_node *node,
                                   const char *const *addresses,
                                   uintptr_t count,
                                   const char *group,
                                   int64_t timeout_us,
                                   denrei_collective **set);

/**
 * Like denrei_collective_open, with what goes to one node on `channel` instead of 15, the same
 * everywhere: nodes that are in several sets at a time give each a channel, and a group, of its own.
 *
 * As for denrei_collective_open.
 */
denrei_code denrei_collective_open_on(const denrei_node *node,
                                      const char *const *addresses,
                                      uintptr_t count,
                                      const char *group,
                                      uint16_t channel,
                                      int64_t timeout_us,
                                      denrei_collective **set);

/**
 * This node's place in the list of addresses; 0 for NULL.
 *
 * `set` is NULL or a set.
 */
uintptr_t denrei_collective_rank(const denrei_collective *set);

/**
 * How many nodes there are; 0 for NULL.
 *
 * `set` is NULL or a set.
 */
uintptr_t denrei_collective_size(const denrei_collective *set);

/**
 * Waits until all have come here. DENREI_TIMEOUT, and a message that names the ranks that are
 * missing, if they have not in time. That operation is over for all, and the set goes on with the next: a node
 * that had not come to it calls it still, and gets DENREI_TIMEOUT at once. One whose process has ended stays away: each
 * operation that needs something of all ends as soon as it is missed, with DENREI_PEER_LOST at rank 0 and DENREI_TIMEOUT
 * elsewhere, and a message that names it; broadcasts reach those that are left. To go on without it, make another set.
 *
 * `set` is a set.
 */
denrei_code denrei_collective_barrier(denrei_collective *set,
                                      int64_t timeout_us);

/**
 * Gives what rank 0 has, `length` bytes at `data`, to all, as a message to be freed. The others'
 * `data` is not looked at.
 *
 * `set` is a set, `data` has `length` bytes, `result` is a place for a pointer.
 */
denrei_code denrei_collective_broadcast(denrei_collective *set,
                                        const void *data,
                                        uintptr_t length,
                                        int64_t timeout_us,
                                        denrei_message **result);

/**
 * Brings what all have to rank 0, in the order of ranks; the others get parts that are none, to be freed as well.
 *
 * `set` is a set, `data` has `length` bytes, `parts` is a place for a pointer.
 */
denrei_code denrei_collective_gather(denrei_collective *set,
                                     const void *data,
                                     uintptr_t length,
                                     int64_t timeout_us,
                                     denrei_parts **parts);

/**
 * Brings what all have to all, in the order of ranks.
 *
 * As for denrei_collective_gather.
 */
denrei_code denrei_collective_all_gather(denrei_collective *set,
                                         const void *data,
                                         uintptr_t length,
                                         int64_t timeout_us,
                                         denrei_parts **parts);

/**
 * Joins what all have, `length` bytes everywhere, in the order of ranks, by `join` at rank 0, which
 * has to be associative; all get the result, as a message to be freed. Where lengths differ nobody gets
 * one, but all DENREI_INVALID.
 *
 * `set` is a set, `data` has `length` bytes, `join` may be called with `context`, `result` is a place
 * for a pointer.
 */
denrei_code denrei_collective_reduce(denrei_collective *set,
                                     const void *data,
                                     uintptr_t length,
                                     denrei_join join,
                                     void *context,
                                     int64_t timeout_us,
                                     denrei_message **result);

/**
 * How many parts there are; 0 for NULL.
 *
 * `parts` is NULL or parts.
 */
uintptr_t denrei_parts_count(const denrei_parts *parts);

/**
 * The part of a rank, and in `length` its size; valid until the parts are freed. NULL if there is no
 * such part.
 *
 * `parts` is NULL or parts, `length` NULL or a place for a number.
 */
const void *denrei_parts_data(const denrei_parts *parts,
                              uintptr_t rank,
                              uintptr_t *length);

/**
 * Gives parts back.
 *
 * `parts` is NULL or parts that are not used again.
 */
void denrei_parts_free(denrei_parts *parts);

/**
 * Ends the set and gives it back: rank 0 waits until all have everything, the others until rank 0 has their
 * parts, or has ended the set without them; DENREI_TIMEOUT if not in time, DENREI_PEER_LOST at once where rank 0 is gone
 * before. Takes NULL.
 *
 * `set` is NULL or a set that is not used again.
 */
denrei_code denrei_collective_close(denrei_collective *set,
                                    int64_t timeout_us);

/**
 * Options of a cast with their defaults.
 */
denrei_cast_options *denrei_cast_options_new(void);

/**
 * Sets one option by its name, such as "group" to "239.255.71.17:7118", "wait" to "10s",
 * "rate_bytes_per_s" to "50MiB", "sync" to "on". An unknown name and an impossible value are refused
 * with DENREI_CONFIG and a message that lists what is possible.
 *
 * `options` comes from denrei_cast_options_new; `name` and `value` are strings.
 */
denrei_code denrei_cast_options_set(denrei_cast_options *options,
                                    const char *name,
                                    const char *value);

/**
 * Has `watch` called with `context` while a cast goes on; NULL: nothing.
 *
 * `options` comes from denrei_cast_options_new; `watch` may be called with `context` during every call
 * with these options, by the thread that makes it.
 */
denrei_code denrei_cast_options_watch(denrei_cast_options *options,
                                      denrei_cast_watch watch,
                                      void *context);

/**
 * Names of all options of casts, in turn from index 0; NULL after the last.
 */
const char *denrei_cast_option_name(uintptr_t index);

/**
 * Gives options back.
 *
 * `options` is NULL or comes from denrei_cast_options_new, and is not used again.
 */
void denrei_cast_options_free(denrei_cast_options *options);

/**
 * Sends the files and directories at `paths` to the receivers at `members` (`member_count` 0: to
 * whoever comes, as soon as the option "min_members" have), and returns when every one has
 * everything or is given up: receivers that failed are in the report. `node` needs the setting
 * "drive" to be "thread", and nobody else may take messages or events from it meanwhile. `options` and
 * `report` may be NULL. DENREI_TIMEOUT if nobody came, DENREI_CANCELLED if the options' watch broke it
 * off, DENREI_SYSTEM or DENREI_CAST if something cannot be sent.
 *
 * `node` is a node, `paths` and `members` have so many strings, `options` is NULL or options, `report`
 * is NULL or a place for a pointer.
 */
denrei_code denrei_cast_send(const denrei_node *node,
                             const char *const *paths,
                             uintptr_t path_count,
                             const char *const *members,
                             uintptr_t member_count,
                             const denrei_cast_options *options,
                             denrei_cast_report **report);

/**
 * Sends what can be read from the descriptor `fd`, to its end, as one stream, to those to whom
 * denrei_cast_send would send files; those who receive into a directory get a file of the name that
 * the option "name" says ("stdin" if none). Of what was read the option "retain_bytes" (64 MiB) is
 * kept for receivers that are late or slow. `fd` stays open and is the caller's; nobody else may read
 * from it until its end. The rest is as for denrei_cast_send.
 *
 * As for denrei_cast_send.
 */
denrei_code denrei_cast_send_stream(const denrei_node *node,
                                    int fd,
                                    const char *const *members,
                                    uintptr_t member_count,
                                    const denrei_cast_options *options,
                                    denrei_cast_report **report);

/**
 * What a report says in numbers.
 *
 * `report` is a report, `summary` a place for a summary.
 */
denrei_code denrei_cast_report_summary(const denrei_cast_report *report,
                                       denrei_cast_summary *summary);

/**
 * What a report says about a receiver, the first is 0. DENREI_UNKNOWN_PEER after the last.
 *
 * `report` is a report, `member` a place for a member.
 */
denrei_code denrei_cast_report_member(const denrei_cast_report *report,
                                      uintptr_t index,
                                      denrei_cast_member *member);

/**
 * Gives a report back.
 *
 * `report` is NULL or a report that is not used again.
 */
void denrei_cast_report_free(denrei_cast_report *report);

/**
 * Waits for one cast, for the option "wait" at most (else without limit), and receives it into the
 * directory `into`: what has come is kept whatever happens, and appears under its name when it is
 * complete and verified. `options` and `receipt` may be NULL; as to `node` and the codes, see
 * denrei_cast_send. DENREI_CAST if the sender has given up.
 *
 * `node` is a node, `into` a string, `options` is NULL or options, `receipt` is NULL or a place for a
 * receipt.
 */
denrei_code denrei_cast_receive(const denrei_node *node,
                                const char *into,
                                const denrei_cast_options *options,
                                denrei_cast_receipt *receipt);

/**
 * Waits for one cast of a stream or a single file, and writes its bytes to the descriptor `fd` as they
 * come, so a part of them if the sender gives up. `fd` stays open and is the caller's. A pipe that nobody reads
 * any more is DENREI_SYSTEM, and no SIGPIPE. The rest is as for denrei_cast_receive.
 *
 * As for denrei_cast_receive.
 */
denrei_code denrei_cast_receive_stream(const denrei_node *node,
                                       int fd,
                                       const denrei_cast_options *options,
                                       denrei_cast_receipt *receipt);

/**
 * Starts a relay in threads of its own: whoever connects to an address of `listen` speaks with the
 * peer at the same place in `targets`, `count` of each. To let both sides begin, give a route in
 * each direction. `config` has the settings of its nodes, keys included; it and `options` may be
 * NULL.
 *
 * `listen` and `targets` have `count` strings, `config` is NULL or settings, `options` NULL or options,
 * `relay` a place for a pointer.
 */
denrei_code denrei_relay_start(const char *const *listen,
                               const char *const *targets,
                               uintptr_t count,
                               const denrei_config *config,
                               const denrei_relay_options *options,
                               denrei_relay **relay);

/**
 * Writes the address of a route, the first is 0, as text that ends with NUL, into `buffer` of `length`
 * bytes; 64 are always enough. DENREI_UNKNOWN_PEER after the last.
 *
 * `relay` is a relay, `buffer` has `length` bytes.
 */
denrei_code denrei_relay_address(const denrei_relay *relay,
                                 uintptr_t index,
                                 char *buffer,
                                 uintptr_t length);

/**
 * Writes the state of at most `capacity` pairs into `pairs`, and how many there are in `count`.
 *
 * `relay` is a relay, `pairs` has room for `capacity` (it may be NULL if that is 0), `count` is a
 * place for a number.
 */
denrei_code denrei_relay_pairs(const denrei_relay *relay,
                               denrei_relay_pair *pairs,
                               uintptr_t capacity,
                               uintptr_t *count);

/**
 * Ends all sessions of a relay in order: nobody begins any more, both sides of each pair are told to stop, and hear that
 * the relay is ending once all that it had acknowledged has gone on to the other. DENREI_TIMEOUT if that did not come
 * about within the time given: what is left, denrei_relay_free ends.
 *
 * `relay` is a relay.
 */
denrei_code denrei_relay_drain(const denrei_relay *relay,
                               int64_t timeout_us);

/**
 * Ends a relay and all its sessions at once. Takes NULL.
 *
 * `relay` is NULL or a relay that is not used again.
 */
void denrei_relay_free(denrei_relay *relay);

/**
 * The library's version, such as "0.1.0".
 */
const char *denrei_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DENREI_DENREI_H */
