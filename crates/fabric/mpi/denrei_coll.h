/* What libdenrei-mpi.so uses of libdenrei-fi.so: crates/fabric/src/abi/collective.rs. */
#ifndef DENREI_COLL_H
#define DENREI_COLL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct denrei_coll_node denrei_coll_node;
typedef struct denrei_coll_seat denrei_coll_seat;
/* Before each piece: of which call it is, what has failed there, and how long all its pieces are. */
struct denrei_coll_head {
    uint32_t turn;
    int32_t error;
    uint64_t len;
};
extern denrei_coll_node *denrei_coll_open(char *address, size_t room);
extern denrei_coll_seat *denrei_coll_listen(denrei_coll_node *node, const char *group);
extern int denrei_coll_accept(denrei_coll_seat *seat, const char *opener, int timeout_ms);
extern denrei_coll_seat *denrei_coll_lead(denrei_coll_node *node, const char *group, const char *members,
                                          size_t count, int timeout_ms);
extern ssize_t denrei_coll_hearers(const denrei_coll_seat *seat, char *hearers, size_t room);
extern int denrei_coll_tell(denrei_coll_seat *seat, uint32_t turn, int timeout_us);
extern int denrei_coll_await_told(denrei_coll_seat *seat, uint32_t turn, int timeout_us);
extern int denrei_coll_send(denrei_coll_seat *seat, const struct denrei_coll_head *head, const void *bytes,
                            size_t len, int timeout_us);
extern int denrei_coll_flush(denrei_coll_seat *seat, int timeout_us);
extern ssize_t denrei_coll_receive(denrei_coll_seat *seat, struct denrei_coll_head *head, void *bytes,
                                   size_t room, int timeout_us);
extern void denrei_coll_leave(denrei_coll_seat *seat);
extern void denrei_coll_close(denrei_coll_node *node);

#endif
