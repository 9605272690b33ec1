/*
 * libdenrei-mtcp.so: gives ordinary programs the sockets of denrei/mtcp.h under the system's names.
 *
 *   LD_PRELOAD=libdenrei-mtcp.so program
 *
 * A socket is denrei's from setsockopt(MTCP_MODE) to close; all others are left to the C library.
 * Reading, writing and polling need nothing: the descriptor is one of the kernel's.
 */
#define _GNU_SOURCE
#include "../include/denrei/mtcp.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

/* The C library's function of this name, looked up once; there is none without it. */
#define NEXT(name)                                                   \
  static __typeof__(&name) next;                                     \
  __typeof__(&name) found = __atomic_load_n(&next, __ATOMIC_ACQUIRE); \
  if (found == NULL) {                                               \
    *(void **)&found = dlsym(RTLD_NEXT, #name);                      \
    if (found == NULL) abort();                                      \
    __atomic_store_n(&next, found, __ATOMIC_RELEASE);                \
  }

int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
  NEXT(setsockopt)
  /* All others are the kernel's, of the descriptor that it is: mtcp_setsockopt would come back here with them. */
  int ours = name == SET_HOSTID || name == JOIN || level == IPPROTO_TCP;
  if (name == MTCP_MODE || (ours && mtcp_in_mode(fd))) return mtcp_setsockopt(fd, level, name, value, length);
  return found(fd, level, name, value, length);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *length) {
  NEXT(getsockopt)
  /* As above: these are not the kernel's, to which the descriptor is one of a pair of Unix sockets. */
  int ours = (level == SOL_SOCKET && (name == SO_DOMAIN || name == SO_PROTOCOL)) ||
             (level == IPPROTO_TCP && name == TCP_NODELAY);
  if (ours && mtcp_in_mode(fd)) return mtcp_getsockopt(fd, level, name, value, length);
  return found(fd, level, name, value, length);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *length) {
  NEXT(getsockname)
  return mtcp_in_mode(fd) ? mtcp_getsockname(fd, address, length) : found(fd, address, length);
}

int getpeername(int fd, struct sockaddr *address, socklen_t *length) {
  NEXT(getpeername)
  return mtcp_in_mode(fd) ? mtcp_getpeername(fd, address, length) : found(fd, address, length);
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
  NEXT(connect)
  return mtcp_in_mode(fd) ? mtcp_connect(fd, address, length) : found(fd, address, length);
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
  NEXT(bind)
  return mtcp_in_mode(fd) ? mtcp_bind(fd, address, length) : found(fd, address, length);
}

int listen(int fd, int backlog) {
  NEXT(listen)
  return mtcp_in_mode(fd) ? mtcp_listen(fd, backlog) : found(fd, backlog);
}

int accept(int fd, struct sockaddr *address, socklen_t *length) {
  NEXT(accept)
  return mtcp_in_mode(fd) ? mtcp_accept(fd, address, length) : found(fd, address, length);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
  NEXT(accept4)
  if (!mtcp_in_mode(fd)) return found(fd, address, length, flags);
  int connection = mtcp_accept(fd, address, length);
  if (connection >= 0 && (flags & SOCK_CLOEXEC) != 0) fcntl(connection, F_SETFD, FD_CLOEXEC);
  if (connection >= 0 && (flags & SOCK_NONBLOCK) != 0) fcntl(connection, F_SETFL, O_RDWR | O_NONBLOCK);
  return connection;
}

int close(int fd) {
  NEXT(close)
  return mtcp_in_mode(fd) ? mtcp_close(fd) : found(fd);
}
