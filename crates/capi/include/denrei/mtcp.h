/*
 * Sockets for groups on denrei: the calls of "TCP with multicast", one reliable byte stream from a
 * sender to all members of a group.
 *
 *   sender                                     member
 *   s = mtcp_socket(AF_INET, SOCK_STREAM, 0)   s = mtcp_socket(AF_INET, SOCK_STREAM, 0)
 *   mtcp_setsockopt(s, …, MTCP_MODE, …)        mtcp_setsockopt(s, …, MTCP_MODE, …)
 *   mtcp_setsockopt(s, …, SET_HOSTID, &id, …)  mtcp_setsockopt(s, …, SET_HOSTID, &own_id, …)
 *     once for each member                     mtcp_setsockopt(s, …, JOIN, &group, …)
 *   mtcp_connect(s, group)                     mtcp_bind(s, group)
 *   mtcp_send(s, …)                            mtcp_listen(s, backlog)
 *   mtcp_close(s)                              c = mtcp_accept(s, …)
 *                                              mtcp_recv(c, …), mtcp_close(c), mtcp_close(s)
 *
 * Data goes from the sender to the members, never back and never to one of them alone; a byte counts
 * as sent when every member has acknowledged it. Members do not change while a connection lasts; if
 * one is lost the connection is reset, for the sender and for the other members.
 *
 * Sockets are ordinary descriptors: poll, select, read, write, O_NONBLOCK and SO_RCVTIMEO work. With
 * libdenrei-mtcp.so in LD_PRELOAD ordinary programs need none of the names below but the three
 * options: socket, setsockopt, connect … close do the same.
 *
 * Calls return -1 and set errno as the system's do; mtcp_error() says it in words. Of a descriptor that is not in
 * MTCP_MODE, setsockopt, getsockopt, getsockname, getpeername and close do what the system's do; the others fail with
 * ENOTSOCK.
 *
 * Members are found by their ids through the group's address; where the network carries no multicast,
 * MTCP_HOSTS=1=192.0.2.7:7500,2=… tells sender and members where they are. MTCP_INTERFACE names the
 * address of this host to speak through (without it: all if there is a cluster key, in DENREI_KEY_FILE or
 * as key_file of the settings, loopback if not), MTCP_SETTINGS=NAME=VALUE,… settings of denrei_config_set.
 * Addresses are of IPv4. connect and listen fail with EACCES where that takes a key that is not there or of no use,
 * with EINVAL where one of these variables says what cannot be.
 * Connections end with the process: close them before, and make them after fork.
 */
#ifndef DENREI_MTCP_H
#define DENREI_MTCP_H

#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options for setsockopt; the level is IPPROTO_TCP or any other. */
enum {
  /* This socket speaks to, or hears, a group. The value is not looked at. ENOTSOCK, EPROTOTYPE, EISCONN: this is no
   * socket, no stream socket, or one that is connected; it stays what it is. */
  MTCP_MODE = 0x4d544301,
  /* An int: the id of one member, at the sender; the own id, at a member. */
  SET_HOSTID = 0x4d544302,
  /* A struct in_addr: the group's address. A struct ip_mreq: the same, and the address of this host
   * to hear it through. */
  JOIN = 0x4d544303
};

/* As socket. */
int mtcp_socket(int domain, int type, int protocol);

/* As setsockopt. */
int mtcp_setsockopt(int fd, int level, int name, const void *value, socklen_t length);

/* Opens the connection to the members whose ids were set, and waits until all of them take part,
 * 10 s at most: ETIMEDOUT, and mtcp_error() names those that are missing. It waits although the
 * descriptor may be non-blocking. */
int mtcp_connect(int fd, const struct sockaddr *group, socklen_t length);

/* Names the group and the port common to its members. */
int mtcp_bind(int fd, const struct sockaddr *group, socklen_t length);

/* From now on senders find this member. */
int mtcp_listen(int fd, int backlog);

/* The descriptor of the next connection, and the sender's address unless `address` is NULL. */
int mtcp_accept(int fd, struct sockaddr *address, socklen_t *length);

/* As getsockname: the group at a member, what the sender is reached at at the sender. */
int mtcp_getsockname(int fd, struct sockaddr *address, socklen_t *length);

/* As getpeername: the sender at a member, the group at the sender. */
int mtcp_getpeername(int fd, struct sockaddr *address, socklen_t *length);

/* As getsockopt. */
int mtcp_getsockopt(int fd, int level, int name, void *value, socklen_t *length);

/* As send: takes bytes as far as there is room. ECONNRESET: a member is gone. */
ssize_t mtcp_send(int fd, const void *data, size_t length, int flags);

/* As recv: 0 when the sender has closed and everything has come, ECONNRESET if the connection broke. */
ssize_t mtcp_recv(int fd, void *data, size_t length, int flags);

/* As close. At the sender it waits until every member has acknowledged everything, 30 s at most;
 * -1 with ECONNRESET or ETIMEDOUT if not all have. The descriptor is closed in any case. A member that
 * has read the end may exit at once: exit waits until the sender knows, 1 s at most. */
int mtcp_close(int fd);

/* 1 if the descriptor is in MTCP_MODE, 0 if not. May be called in signal handlers. */
int mtcp_in_mode(int fd);

/* What the last of these calls that failed in this thread has to say. */
const char *mtcp_error(void);

#ifdef __cplusplus
}
#endif

#endif
