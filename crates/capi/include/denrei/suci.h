/*
 * Suci's calls (Simple User level UDP Communication Interface) on denrei: one socket for any number
 * of peers, named by ids; blocks are delivered whole, once and in order.
 *
 * Calls that fail return -1 (or NULL) and set errno; datagram_error() says it in words. A socket may
 * be used by any number of threads, each of which sets its own destination with each write.
 */
#ifndef DENREI_SUCI_H
#define DENREI_SUCI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ids and the addresses they stand for. */
typedef struct datagram_addrdb datagram_addrdb;

/* One UDP port. */
typedef struct datagram_socket datagram_socket;

/* What is known of the way to a peer. */
typedef struct {
  uint64_t delay_us;        /* smoothed round-trip time; 0 before anything was acknowledged */
  uint64_t window_bytes;    /* what the receiver takes without being asked */
  uint64_t in_flight_bytes; /* sent, not acknowledged */
  uint64_t queue_length;    /* blocks not acknowledged */
  uint64_t queue_bytes;     /* their bytes */
  uint64_t lost_packets;    /* since the first block */
} datagram_flow_state;

/* An address database without entries. */
datagram_addrdb *datagram_addrdb_new(void);

/* Enters an id, which must not be negative, and its address, such as "192.0.2.7", and port; an id
 * that is there gets another address. Sockets opened before do not see it. 0, or -1: EINVAL. */
int datagram_addrdb_add(datagram_addrdb *addrdb, int id, const char *address, int port);

/* Sets one of denrei's settings (see denrei_config_set) for sockets opened later. 0, or -1: EINVAL. */
int datagram_addrdb_set(datagram_addrdb *addrdb, const char *name, const char *value);

/* Gives the database back; sockets keep what they need. Takes NULL. */
void datagram_addrdb_free(datagram_addrdb *addrdb);

/* Opens a socket on an address and port of this host, as `myid`. NULL: EINVAL, EADDRINUSE, … */
datagram_socket *datagram(datagram_addrdb *addrdb, const char *myaddr, int myport, int myid);

/* Waits up to 5 s for what was written to be acknowledged, and closes. Takes NULL. */
void datagram_close(datagram_socket *sock);

/* Chooses whom datagram_write writes to: (id, sock), or (sock, id) as in the paper's sample. 0, or
 * -1: ENOENT, the id is not in the database, or is the socket's own; EINVAL, in a destructor of the thread's data
 * or a function of atexit, for which it is not kept. */
int datagram_destination(int id, datagram_socket *sock);
int datagram_set_destination(datagram_socket *sock, int id);

/* Writes a block; waits while the queue to the destination is full. Its length, or -1: ENOTCONN, no
 * destination; EMSGSIZE; ENOMEM; ECONNRESET: the peer was lost since the last write, and with it what
 * datagram_lost counts; the next write begins anew. */
int datagram_write(datagram_socket *sock, const void *buf, int len);

/* The same without waiting: -1 with EAGAIN if the queue is full. */
int datagram_write0(datagram_socket *sock, const void *buf, int len);

/* Reads the next block of any peer; waits for one. Its size, or -1: EMSGSIZE, the block is larger
 * than len and stays for a read that has room. */
int datagram_read(datagram_socket *sock, void *buf, int len);

/* The same without waiting: 0 if there is none. */
int datagram_read0(datagram_socket *sock, void *buf, int len);

/* The id of whoever sent the block that this thread read last; -1 if it is not in the database. */
int datagram_source(datagram_socket *sock);

/* Waits until a block is complete, at most sec + usec. Its size (1 for an empty one), 0, or -1. */
int datagram_ready(datagram_socket *sock, int sec, int usec);

/* Waits until `size` bytes may be written to `id` without waiting, at most sec + usec. 1, 0, or -1. */
int datagram_wait(datagram_socket *sock, int sec, int usec, int size, int id);

/* Blocks to `id` that are not acknowledged, or -1. */
int datagram_queue_length(datagram_socket *sock, int id);

/* Sends again what is not acknowledged by `id` and due long since. 0, or -1. */
int datagram_retransmission(datagram_socket *sock, int id);

/* Blocks to `id` of which it is not known that they arrived, because the peer was lost. */
uint64_t datagram_lost(datagram_socket *sock, int id);

/* The way to `id` as the library sees it now. 0, or -1: ENOTCONN, there is no session. */
int datagram_flow(datagram_socket *sock, int id, datagram_flow_state *state);

/* What the last call of this thread that failed has to say. */
const char *datagram_error(void);

#ifdef __cplusplus
}

inline int datagram_destination(datagram_socket *sock, int id) {
  return datagram_set_destination(sock, id);
}
#else
/* The paper's table and its sample give the arguments in different orders: take both. */
#define datagram_destination(first, second)            \
  __extension__ _Generic((first),                      \
      datagram_socket *: datagram_set_destination,     \
      default: (datagram_destination))((first), (second))
#endif

#endif
