/* libdenrei-mpi.so: collective operations of MPI over denrei's groups, for LD_PRELOAD (MPI's profiling
 * interface). One source, compiled with the mpicc of the MPI that it is for: `cargo xtask fabric --mpicc`.
 *
 * Inputs -> outputs: MPI_Bcast, MPI_Barrier, MPI_Allgather, MPI_Allgatherv, MPI_Allreduce -> what goes from
 * one to all travels once, as multicast, over a group that is opened per communicator and root. What goes the
 * other way stays the MPI's, but for a barrier's word that a rank has come, which goes to rank 0 by the session
 * beneath the group, not under Open MPI. For each communicator, operation and power of two of bytes the first calls
 * go one way, the next ones the other, and are timed; the faster way is kept. What cannot be served goes to the
 * MPI: intercommunicators, few ranks, more than 2 GiB, hosts where no group can be opened.
 *
 * While it waits for a group the MPI's own progress is made, so that whoever needs an operation of
 * this rank's to go on gets it. Sources: S12, M9; ADR 32 and 98. */
#define _GNU_SOURCE
#include "denrei_address.h"
#include "denrei_arguments.h"
#include "denrei_reach.h"
#include "denrei_state.h"
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is sent at once: up to so much goes whole, which wakes each receiver once … */
#define WHOLE ((size_t)1024 * 1024)
/* … and of more, receivers copy one piece while the next is under way. */
#define PIECE ((size_t)256 * 1024)
/* How long a group may take to open. */
#define OPEN_MS 5000
/* Between two looks at what the MPI has to do. */
#define SLICE_US 500
/* How long it may take until there is room for word of a failure. */
#define TELL_US 1000000
/* With more than this the opener stays until all have it: what does not leave at once would be late. */
#define LEAVES_AT_ONCE ((size_t)8 * 1024)
/* A tag that no application is likely to use. */
#define UNLIKELY_TAG 32749

/* Operations that groups have carried; shown at the end if DENREI_MPI_VERBOSE is set. */
static unsigned long carried;

static denrei_coll_seat *lead(const struct state *state, const char *group) {
    char *members = malloc((size_t)state->size * ADDRESS);
    if (members == NULL)
        return NULL;
    size_t count = 0;
    for (int rank = 0; rank < state->size; rank++)
        if (rank != state->rank)
            memcpy(members + ADDRESS * count++, state->addresses + ADDRESS * rank, ADDRESS);
    denrei_coll_seat *seat = denrei_coll_lead(node, group, members, count, OPEN_MS);
    free(members);
    return seat;
}

/* Whether it is so at all ranks. */
static int agree(const struct state *state, int *is_good) {
    int own = *is_good;
    return PMPI_Allreduce(&own, is_good, 1, MPI_INT, MPI_MIN, state->comm);
}

/* Ours, with the first group (with the state it would wait for ranks that died before, under Open MPI). Not MPI_Comm_dup's,
 * which copies the application's attributes, and not for each communicator: an MPI has room for a few thousand. */
static int make_private(struct state *state) {
    int is_there = state->private_comm != MPI_COMM_NULL;
    int result = is_there ? MPI_SUCCESS : PMPI_Comm_split(state->comm, 0, state->rank, &state->private_comm);
    if (result == MPI_SUCCESS)
        PMPI_Comm_set_errhandler(state->private_comm, MPI_ERRORS_RETURN);
    return result;
}

/* Opens the group of a root, if it was not tried. All ranks come here together, and agree on whether they hear it (a process
 * hears so many groups at a time) and on whether it worked. */
static int open_group(struct state *state, int root) {
    char group[ADDRESS] = {0};
    int result, is_root = state->rank == root;
    denrei_coll_seat **seat = &state->seats[root];
    if (state->is_open[root] != 0)
        return MPI_SUCCESS;
    state->is_open[root] = -1;
    release_left(0);
    if (is_root)
        choose_address(group);
    if ((result = PMPI_Bcast(group, ADDRESS, MPI_CHAR, root, state->comm)) != MPI_SUCCESS)
        return result;
    *seat = is_root || is_left_alone() ? NULL : denrei_coll_listen(node, group);
    int is_good = is_root ? !is_left_alone() : *seat != NULL;
    result = agree(state, &is_good);
    if (result == MPI_SUCCESS && is_good) {
        if (is_root)
            *seat = lead(state, group);
        is_good = *seat != NULL;
        if (is_good && is_root)
            is_good = is_worth_keeping(state, *seat);
        else if (is_good)
            is_good = denrei_coll_accept(*seat, state->addresses + ADDRESS * root, OPEN_MS + 1000) == 0;
        result = agree(state, &is_good);
        if (result == MPI_SUCCESS && is_good == OUT_OF_REACH)
            result = note_reach(state, root, *seat);
    }
    if (result == MPI_SUCCESS && is_good > 0 && (result = make_private(state)) == MPI_SUCCESS) {
        state->is_open[root] = 1;
    } else if (*seat != NULL) {
        denrei_coll_leave(*seat);
        *seat = NULL;
    }
    return result;
}

static enum way way_of(const struct choice *choice) {
    if (use == ALWAYS)
        return GROUP;
    return choice->is_made ? choice->way : choice->calls <= TRIALS ? OWN_OF_MPI : GROUP;
}

/* A call is over: after enough of them all ranks choose the way that was faster for the slowest. */
static int learn(struct state *state, struct choice *choice, enum way way, double seconds) {
    if (choice->is_made || use == ALWAYS)
        return MPI_SUCCESS;
    int turn = choice->calls++ % (TRIALS + 1);
    if (turn > 0)
        choice->seconds[way][turn - 1] = seconds;
    if (choice->calls < WAYS * (TRIALS + 1))
        return MPI_SUCCESS;
    double slowest[WAYS][TRIALS];
    choice->is_made = 1;
    int result = PMPI_Allreduce(choice->seconds, slowest, WAYS * TRIALS, MPI_DOUBLE, MPI_MAX, state->comm);
    if (result == MPI_SUCCESS && fastest(slowest[GROUP]) < WORTH_IT * fastest(slowest[OWN_OF_MPI]))
        choice->way = GROUP;
    return result;
}

/* Others may wait for something that the MPI has to do here. It says if one of them is lost. Of what has come it
 * finds nothing: Open MPI would leave it at that. */
static int make_progress(const struct state *state) {
    int found;
    return PMPI_Iprobe(MPI_ANY_SOURCE, UNLIKELY_TAG, state->comm, &found, MPI_STATUS_IGNORE);
}

/* What the MPI does not know of is told to the communicator's handler as well. */
static int fail(const struct state *state, int error) {
    PMPI_Comm_call_errhandler(state->comm, error);
    return error;
}

/* Said where it happens: the MPI knows of no groups. */
static int broken(const struct state *state, int root, int why) {
    fprintf(stderr, "denrei-mpi: rank %d: the group of rank %d broke: %s\n", state->rank, root, strerror(why));
    return fail(state, MPI_ERR_OTHER);
}

/* The next piece of this turn; what is left of turns that failed here goes by. The root has failed, or has not what
 * this rank asks for: fails as well. */
static ssize_t receive(struct state *state, int root, char *bytes, size_t piece, size_t len, int *error) {
    struct denrei_coll_head head = {0};
    ssize_t done;
    do
        done = denrei_coll_receive(state->seats[root], &head, bytes, piece, SLICE_US);
    while (done >= 0 && (int32_t)(head.turn - state->turns[root]) < 0);
    if (done >= 0 && head.error != MPI_SUCCESS)
        *error = head.error;
    else if (done >= 0 && (head.turn != state->turns[root] || head.len != len || (size_t)done != piece))
        *error = head.turn == state->turns[root] && head.len > len ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
    return done;
}

static int pieces(struct state *state, int root, char *bytes, size_t len) {
    denrei_coll_seat *seat = state->seats[root];
    int is_root = state->rank == root, stays = is_root && len > LEAVES_AT_ONCE, error = MPI_SUCCESS;
    size_t most = len <= WHOLE ? WHOLE : PIECE;
    struct denrei_coll_head head = {.turn = state->turns[root], .error = MPI_SUCCESS, .len = len};
    int result = make_progress(state); /* What the MPI was told to send leaves. */
    for (size_t at = 0; result == MPI_SUCCESS && (at < len || stays);) {
        size_t piece = len - at < most ? len - at : most;
        ssize_t done;
        if (at == len)
            stays = (done = denrei_coll_flush(seat, SLICE_US)) == -EAGAIN;
        else if (is_root)
            done = denrei_coll_send(seat, &head, bytes + at, piece, SLICE_US);
        else
            done = receive(state, root, bytes + at, piece, len, &error);
        if (done == -EAGAIN) {
            result = make_progress(state);
            continue;
        }
        if (done < 0 || error != MPI_SUCCESS)
            return done < 0 ? broken(state, root, (int)-done) : fail(state, error);
        at += piece;
    }
    return result;
}

/* From the root to all, if it went well so far at this rank, as `result` says. Where it did not at the root the
 * others, who wait for what cannot come, are told. */
static int down(struct state *state, int root, char *bytes, size_t len, int result) {
    struct denrei_coll_head head = {.turn = state->turns[root], .error = MPI_ERR_OTHER, .len = 0};
    if (result == MPI_SUCCESS)
        result = pieces(state, root, bytes, len);
    if (result != MPI_SUCCESS && state->rank == root) {
        PMPI_Error_class(result, &head.error);
        denrei_coll_send(state->seats[root], &head, NULL, 0, TELL_US);
    }
    return result;
}

/* Elements of any type from the root to all; `bytes` is their size without gaps. */
static int down_typed(struct state *state, int root, void *buffer, int count, MPI_Datatype type, size_t bytes,
                      int result) {
    if (result != MPI_SUCCESS || is_plain(type))
        return down(state, root, buffer, bytes, result);
    int room = 0, at = 0;
    PMPI_Pack_size(count, type, state->comm, &room);
    char *packed = malloc((size_t)room > bytes ? (size_t)room : bytes + 1);
    if (packed == NULL)
        result = fail(state, MPI_ERR_NO_MEM);
    else if (state->rank == root)
        result = PMPI_Pack(buffer, count, type, packed, room, &at, state->comm);
    result = down(state, root, packed, bytes, result);
    if (result == MPI_SUCCESS && state->rank != root)
        result = PMPI_Unpack(packed, (int)bytes, &at, buffer, count, type, state->comm);
    free(packed);
    return result;
}

/* One call: which way, how long it took, and what is reported. */
#define EITHER(state, operation, root, bytes, own, ours)                                                 \
    do {                                                                                                 \
        int result = state->error;                                                                       \
        if (result != MPI_SUCCESS) /* The communicator's handler knows of it. */                         \
            return state->error = MPI_SUCCESS, result;                                                   \
        struct choice *choice = &state->choices[operation][class_of(bytes)];                             \
        enum way way = way_of(choice);                                                                   \
        if (way == GROUP && (result = open_group(state, root)) != MPI_SUCCESS)                           \
            return result;                                                                               \
        if (way == GROUP && state->is_open[root] < 0)                                                    \
            return own;                                                                                  \
        double began = PMPI_Wtime();                                                                     \
        state->turns[root] += way == GROUP;                                                              \
        result = way == GROUP ? (ours) : (own);                                                          \
        if (way == GROUP && result == MPI_SUCCESS)                                                       \
            __atomic_add_fetch(&carried, 1, __ATOMIC_RELAXED);                                           \
        /* It counts all the same: at others it may have gone well. */                                   \
        int learnt = learn(state, choice, way, PMPI_Wtime() - began);                                    \
        return result != MPI_SUCCESS ? result : learnt;                                                  \
    } while (0)

#ifdef OPEN_MPI
/* All tell rank 0 that they are here. By an operation of the MPI's: where a rank is lost, that calls the communicator's
 * handler, and a probe, which is how progress is made here, ends the process. */
static int up(struct state *state) {
    int one = 1, all = 0;
    return PMPI_Reduce(&one, &all, 1, MPI_INT, MPI_SUM, 0, state->comm);
}
#else
/* All tell rank 0 that they are here, by the sessions beneath the group. Of what rank 0 has sent before, and the MPI still
 * holds, others may be in need to come here; the others make progress when they have told. */
static int up(struct state *state) {
    denrei_coll_seat *seat = state->seats[0];
    uint32_t turn = state->turns[0];
    int is_root = state->rank == 0, done = -EAGAIN;
    int result = is_root ? make_progress(state) : MPI_SUCCESS;
    while (result == MPI_SUCCESS && done == -EAGAIN) {
        done = is_root ? denrei_coll_await_told(seat, turn, SLICE_US) : denrei_coll_tell(seat, turn, SLICE_US);
        if (done == -EAGAIN)
            result = make_progress(state);
        else if (done < 0)
            result = broken(state, 0, -done);
    }
    return result;
}
#endif

static int barrier_by_group(struct state *state) {
    char token = 0;
    return down(state, 0, &token, sizeof token, up(state));
}

static int allreduce_by_group(struct state *state, const void *from, void *to, int count, MPI_Datatype type,
                              MPI_Op op, size_t bytes) {
    const void *own = from != MPI_IN_PLACE ? from : state->rank == 0 ? MPI_IN_PLACE : to;
    int result = PMPI_Reduce(own, to, count, type, op, 0, state->comm);
    return down_typed(state, 0, to, count, type, bytes, result);
}

/* The parts of all come to rank 0, and travel without gaps: with a negative extent Open MPI's MPI_Gather fails where its
 * MPI_Allgather does not. */
static int gather(struct state *state, const void *from, int out_count, MPI_Datatype out_type, void *to, int count,
                  MPI_Datatype type) {
    int room = 0, at = 0;
    char *packed = NULL;
    if (state->rank != 0 && !is_plain(out_type) &&
        PMPI_Pack_size(out_count, out_type, state->comm, &room) == MPI_SUCCESS)
        packed = malloc((size_t)room + 1);
    if (packed == NULL)
        return PMPI_Gather(from, out_count, out_type, to, count, type, 0, state->comm);
    PMPI_Pack(from, out_count, out_type, packed, room, &at, state->comm);
    int result = PMPI_Gather(packed, at, MPI_PACKED, to, count, type, 0, state->comm);
    free(packed);
    return result;
}

static int allgather_by_group(struct state *state, const void *from, int out_count, MPI_Datatype out_type,
                              void *to, int count, MPI_Datatype type, size_t bytes) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type, &lower, &extent);
    if (from == MPI_IN_PLACE && state->rank != 0) {
        from = (char *)to + (MPI_Aint)state->rank * count * extent;
        out_count = count;
        out_type = type;
    }
    int result = gather(state, from, out_count, out_type, to, count, type);
    return down_typed(state, 0, to, count * state->size, type, bytes, result);
}

/* Parts that lie anywhere: each goes down by itself, in the order of ranks. */
static int allgatherv_by_group(struct state *state, const void *from, int out_count, MPI_Datatype out_type,
                               void *to, const int *counts, const int *at, MPI_Datatype type) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type, &lower, &extent);
    if (from == MPI_IN_PLACE && state->rank != 0) {
        from = (char *)to + at[state->rank] * extent;
        out_count = counts[state->rank];
        out_type = type;
    }
    int result = PMPI_Gatherv(from, out_count, out_type, to, counts, at, type, 0, state->comm);
    int rank = 0;
    do
        result = down_typed(state, 0, (char *)to + at[rank] * extent, counts[rank], type,
                            bytes_of(counts[rank], type), result);
    while (result == MPI_SUCCESS && ++rank < state->size);
    return result;
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    size_t bytes = bytes_of(count, type);
    struct state *state = bytes > 0 ? state_of(comm) : NULL;
    if (state == NULL || root < 0 || root >= state->size || is_wrong(buffer, type, state->private_comm))
        return PMPI_Bcast(buffer, count, type, root, comm);
    EITHER(state, BCAST, root, bytes, PMPI_Bcast(buffer, count, type, root, comm),
           down_typed(state, root, buffer, count, type, bytes, MPI_SUCCESS));
}

int MPI_Barrier(MPI_Comm comm) {
    struct state *state = state_of(comm);
    if (state == NULL)
        return PMPI_Barrier(comm);
    EITHER(state, BARRIER, 0, 1, PMPI_Barrier(comm), barrier_by_group(state));
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    size_t bytes = bytes_of(count, type);
    struct state *state = bytes > 0 && op != MPI_OP_NULL ? state_of(comm) : NULL;
    if (state == NULL || from == to || is_nowhere(from, type) || is_wrong(to, type, state->private_comm))
        return PMPI_Allreduce(from, to, count, type, op, comm);
    EITHER(state, ALLREDUCE, 0, bytes, PMPI_Allreduce(from, to, count, type, op, comm),
           allreduce_by_group(state, from, to, count, type, op, bytes));
}

int MPI_Allgather(const void *from, int out_count, MPI_Datatype out_type, void *to, int count,
                  MPI_Datatype type, MPI_Comm comm) {
    size_t bytes = bytes_of(count, type);
    struct state *state = bytes > 0 ? state_of(comm) : NULL;
    if (state == NULL || (bytes = bytes_of((MPI_Count)count * state->size, type)) == 0 ||
        is_wrong(to, type, state->private_comm) ||
        is_wrong_part(from, out_count, out_type, to, (MPI_Aint)count * state->rank, type, state->private_comm))
        return PMPI_Allgather(from, out_count, out_type, to, count, type, comm);
    EITHER(state, ALLGATHER, 0, bytes,
           PMPI_Allgather(from, out_count, out_type, to, count, type, comm),
           allgather_by_group(state, from, out_count, out_type, to, count, type, bytes));
}

int MPI_Allgatherv(const void *from, int out_count, MPI_Datatype out_type, void *to, const int counts[],
                   const int at[], MPI_Datatype type, MPI_Comm comm) {
    struct state *state = type != MPI_DATATYPE_NULL ? state_of(comm) : NULL;
    size_t bytes = state != NULL ? bytes_of(sum(counts, state->size), type) : 0;
    if (bytes == 0 || is_wrong(to, type, state->private_comm) ||
        is_wrong_part(from, out_count, out_type, to, at[state->rank], type, state->private_comm))
        return PMPI_Allgatherv(from, out_count, out_type, to, counts, at, type, comm);
    EITHER(state, ALLGATHER, 0, bytes,
           PMPI_Allgatherv(from, out_count, out_type, to, counts, at, type, comm),
           allgatherv_by_group(state, from, out_count, out_type, to, counts, at, type));
}

int MPI_Comm_disconnect(MPI_Comm *comm) {
    if (comm != NULL && *comm != MPI_COMM_NULL)
        part(*comm);
    return PMPI_Comm_disconnect(comm);
}

#if MPI_VERSION >= 4
/* All its communicators were freed. */
int MPI_Session_finalize(MPI_Session *session) {
    release_left(1);
    free_unused_key();
    return PMPI_Session_finalize(session);
}

/* The forms with large counts: those that fit are the same. */
int MPI_Bcast_c(void *buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return count > INT_MAX ? PMPI_Bcast_c(buffer, count, type, root, comm)
                           : MPI_Bcast(buffer, (int)count, type, root, comm);
}

int MPI_Allreduce_c(const void *from, void *to, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return count > INT_MAX ? PMPI_Allreduce_c(from, to, count, type, op, comm)
                           : MPI_Allreduce(from, to, (int)count, type, op, comm);
}

int MPI_Allgather_c(const void *from, MPI_Count out_count, MPI_Datatype out_type, void *to, MPI_Count count,
                    MPI_Datatype type, MPI_Comm comm) {
    /* The receive count is the same at all ranks, the send count need not be. */
    if (count > INT_MAX || out_count > INT_MAX)
        return PMPI_Allgather_c(from, out_count, out_type, to, count, type, comm);
    return MPI_Allgather(from, (int)out_count, out_type, to, (int)count, type, comm);
}
#endif

/* Waits, for each communicator that has groups, until its ranks are here: all have everything. A rank may be in none of
 * them, and others be of another MPI_COMM_WORLD: so not by a barrier of that, and of all at once. */
static void await_all(void) {
    ask_left(leaving);
    for (struct state *state = states; state != NULL; state = state->next)
        if (state->private_comm != MPI_COMM_NULL)
            PMPI_Ibarrier(state->private_comm, &state->all_are_there);
    for (struct state *state = states; state != NULL; state = state->next)
        PMPI_Wait(&state->all_are_there, MPI_STATUS_IGNORE);
    release_left(1);
}

static void begin_no_more(void) {}

/* The MPI itself begins with the callbacks of MPI_COMM_SELF's attributes, in which all calls are allowed: those are its own. */
int MPI_Finalize(void) {
    pthread_once(&once, begin_no_more);
    await_all();
    is_finalizing = 1;
    while (states != NULL)
        PMPI_Comm_delete_attr(states->comm, keyval);
    if (keyval != MPI_KEYVAL_INVALID)
        PMPI_Comm_free_keyval(&keyval);
    if (node != NULL)
        denrei_coll_close(node);
    node = NULL;
    if (getenv("DENREI_MPI_VERBOSE") != NULL)
        fprintf(stderr, "denrei-mpi: groups carried %lu operations\n", carried);
    return PMPI_Finalize();
}
