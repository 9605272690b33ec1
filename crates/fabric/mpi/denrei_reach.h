/* Whether multicast reaches the ranks: what would come to them by unicast the MPI does better itself.
 *
 * That a network does not carry multicast is found out when a group is opened, which takes a while. So each process notes it,
 * and no group is tried again of a communicator that it is in. */
#ifndef DENREI_REACH_H
#define DENREI_REACH_H

#include "denrei_coll.h"
#include "denrei_state.h"
#include "denrei_wishes.h"
#include <mpi.h>
#include <stdatomic.h>

/* What a root says of a group that is open, but not for all by multicast. Less than all else that is agreed on. */
#define OUT_OF_REACH (-1)

/* Multicast does not come to this process, or does not leave it. */
static atomic_int is_isolated;

/* Whether groups are left alone here. */
static int is_left_alone(void) {
    return use != ALWAYS && atomic_load(&is_isolated);
}

/* Whether a root's group, which is open, is one to keep: 1 or OUT_OF_REACH. */
static int is_worth_keeping(const struct state *state, const denrei_coll_seat *seat) {
    return use == ALWAYS || denrei_coll_hearers(seat, NULL, 0) == state->size - 1 ? 1 : OUT_OF_REACH;
}

/* After the root of a group, which has the seat, said that it is out of reach: each of the ranks notes if it is the one that
 * does not hear, or the root, if nobody does. */
static int note_reach(struct state *state, int root, const denrei_coll_seat *seat) {
    int count = state->size - 1, is_root = state->rank == root, is_anybody = 0;
    if (is_root)
        denrei_coll_hearers(seat, state->hearers, (size_t)count);
    int result = PMPI_Bcast(state->hearers, count, MPI_CHAR, root, state->comm);
    for (int member = 0; member < count; member++)
        is_anybody |= state->hearers[member];
    if (is_root ? !is_anybody : is_anybody && !state->hearers[state->rank - (state->rank > root)])
        atomic_store(&is_isolated, 1);
    return result;
}

#endif
