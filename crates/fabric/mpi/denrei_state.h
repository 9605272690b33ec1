/* What each communicator has, from its first collective call until it is freed. */
#ifndef DENREI_STATE_H
#define DENREI_STATE_H

#include "denrei_address.h"
#include "denrei_choice.h"
#include "denrei_coll.h"
#include "denrei_wishes.h"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a communicator has. */
struct state {
    /* The application's: its handler is told of errors, and by MPICH of no others. All ranks call the same
     * collective operations of it in the same order, ours among them. */
    MPI_Comm comm;
    /* For when that one is freed, or the MPI ended: says when all ranks are there. With a group only. */
    MPI_Comm private_comm;
    MPI_Request all_are_there;
    /* Whether that was begun, of one that was freed. */
    int is_asked;
    /* What went wrong as this was made, until it is returned. */
    int error;
    int rank, size;
    /* With all that follows. NULL: it is left to the MPI. */
    denrei_coll_seat **seats;
    char *addresses;
    /* By root: 0 not tried, 1 opened, -1 cannot be. */
    signed char *is_open;
    /* Of the members of a group that did not reach them all: who heard it. */
    char *hearers;
    /* By root: calls that its group was to carry. The same at all ranks. */
    uint32_t *turns;
    struct choice (*choices)[CLASSES];
    struct state *next;
};

static int keyval = MPI_KEYVAL_INVALID;
static int is_finalizing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Of the attribute's name, and of how many calls use it just now. Taken before the other one. */
static pthread_mutex_t key_lock = PTHREAD_MUTEX_INITIALIZER;
static int callers;
static struct state *states;
/* Of communicators that were freed here, and of which others may still need the groups. */
static struct state *leaving;
static denrei_coll_node *node;
static char own_address[ADDRESS];

static void release(struct state *state) {
    for (int root = 0; state->seats != NULL && root < state->size; root++)
        if (state->seats[root] != NULL)
            denrei_coll_leave(state->seats[root]);
    if (state->private_comm != MPI_COMM_NULL)
        PMPI_Comm_free(&state->private_comm);
    free(state->seats);
    free(state->choices);
    free(state);
}

static void keep_leaving(struct state *state) {
    pthread_mutex_lock(&lock);
    state->next = leaving;
    leaving = state;
    pthread_mutex_unlock(&lock);
}

/* Asks, of communicators that were freed here, whether all ranks are there. */
static void ask_left(struct state *first) {
    for (struct state *state = first; state != NULL; state = state->next)
        if (!state->is_asked)
            state->is_asked = PMPI_Ibarrier(state->private_comm, &state->all_are_there) == MPI_SUCCESS;
}

/* Ends the groups of communicators that all ranks have freed; `waits`: of all that were freed here. Not for who comes
 * from the MPI, which may hold a lock of its own. */
static void release_left(int waits) {
    pthread_mutex_lock(&lock);
    struct state *state = leaving;
    leaving = NULL;
    pthread_mutex_unlock(&lock);
    ask_left(state);
    while (state != NULL) {
        struct state *next = state->next;
        int is_done = 1;
        if (waits)
            PMPI_Wait(&state->all_are_there, MPI_STATUS_IGNORE);
        else if (PMPI_Test(&state->all_are_there, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            is_done = 1;
        if (is_done)
            release(state);
        else
            keep_leaving(state);
        state = next;
    }
}

/* The communicator is freed, by all its ranks, in whatever order and whenever they come to it: its groups end when all
 * have everything. That is asked at a later call: of a communicator with operations under way the MPI comes here when
 * the last of them is over, and MPICH holds its lock then. */
static int forget(MPI_Comm comm, int key, void *value, void *extra) {
    struct state *state = value;
    (void)comm, (void)key, (void)extra;
    pthread_mutex_lock(&lock);
    struct state **at = &states;
    while (*at != NULL && *at != state)
        at = &(*at)->next;
    if (*at != NULL)
        *at = state->next;
    pthread_mutex_unlock(&lock);
    if (!is_finalizing && state->private_comm != MPI_COMM_NULL)
        keep_leaving(state);
    else
        release(state);
    return MPI_SUCCESS;
}

/* All ranks let go of a communicator, and of each other: they end its groups here, together. Later some may call the
 * MPI no more. */
static void part(MPI_Comm comm) {
    pthread_mutex_lock(&lock);
    struct state *state = states;
    while (state != NULL && state->comm != comm)
        state = state->next;
    pthread_mutex_unlock(&lock);
    if (state == NULL || state->private_comm == MPI_COMM_NULL)
        return;
    PMPI_Barrier(state->private_comm);
    PMPI_Comm_free(&state->private_comm);
}

static void begin(void) {
    read_wishes();
    if (use != NEVER)
        node = denrei_coll_open(own_address, sizeof own_address);
    if (use != NEVER && node == NULL)
        fprintf(stderr, "denrei-mpi: no Node can be opened here, the MPI's own collectives are used\n");
}

/* Whether there is an attribute's name, until `let_key_go`: none after the end. */
static int hold_key(void) {
    pthread_once(&once, begin);
    pthread_mutex_lock(&key_lock);
    if (keyval == MPI_KEYVAL_INVALID && !is_finalizing)
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL);
    int is_there = keyval != MPI_KEYVAL_INVALID;
    callers += is_there;
    pthread_mutex_unlock(&key_lock);
    return is_there;
}

static void let_key_go(void) {
    pthread_mutex_lock(&key_lock);
    callers--;
    pthread_mutex_unlock(&key_lock);
}

/* What groups need. All ranks are here, and wish for them. */
static void prepare(struct state *state) {
    int size = state->size;
    denrei_coll_seat **seats = calloc(size, sizeof *seats + sizeof(uint32_t) + ADDRESS + 2);
    state->choices = calloc(OPERATIONS, sizeof *state->choices);
    if (seats == NULL || state->choices == NULL)
        PMPI_Abort(state->comm, 1);
    state->seats = seats;
    state->turns = (uint32_t *)(seats + size);
    state->addresses = (char *)(state->turns + size);
    state->is_open = (signed char *)(state->addresses + (size_t)size * ADDRESS);
    state->hearers = (char *)(state->is_open + size);
    state->error = PMPI_Allgather(own_address, ADDRESS, MPI_CHAR, state->addresses, ADDRESS, MPI_CHAR, state->comm);
    int is_possible = state->error == MPI_SUCCESS;
    for (int rank = 0; rank < size; rank++)
        is_possible &= state->addresses[rank * ADDRESS] != 0;
    memset(state->is_open, is_possible ? 0 : -1, size);
}

/* All ranks of a communicator come here at their first collective call. */
static struct state *make_state(MPI_Comm comm, int size) {
    int is_agreed;
    struct state *state = calloc(1, sizeof *state);
    if (state == NULL)
        PMPI_Abort(comm, 1);
    *state = (struct state){.comm = comm, .size = size};
    state->private_comm = MPI_COMM_NULL;
    state->all_are_there = MPI_REQUEST_NULL;
    PMPI_Comm_rank(comm, &state->rank);
    state->error = agree_on_wishes(comm, &is_agreed);
    if (state->error == MPI_SUCCESS && !is_agreed)
        say_what_differs(state->rank);
    else if (state->error == MPI_SUCCESS && use != NEVER && size >= least_ranks)
        prepare(state);
    PMPI_Comm_set_attr(comm, keyval, state);
    pthread_mutex_lock(&lock);
    state->next = states;
    states = state;
    pthread_mutex_unlock(&lock);
    return state;
}

#if MPI_VERSION >= 4
/* A session ends, and with the last one the MPI, which may begin anew: it would give the name to an attribute of the
 * application's then. Who still uses it has a session of its own, and comes here later. */
static void free_unused_key(void) {
    pthread_mutex_lock(&key_lock);
    pthread_mutex_lock(&lock);
    int is_used = states != NULL || callers > 0 || keyval == MPI_KEYVAL_INVALID;
    pthread_mutex_unlock(&lock);
    if (!is_used)
        PMPI_Comm_free_keyval(&keyval);
    pthread_mutex_unlock(&key_lock);
}
#endif

/* What a communicator has, if it is one for us; it is made at the first call. */
static struct state *find_state(MPI_Comm comm) {
    int is_inter = 1, size = 0, is_there = 0;
    struct state *state = NULL;
    PMPI_Comm_get_attr(comm, keyval, &state, &is_there);
    if (is_there)
        return state;
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_size(comm, &size);
    return is_inter || size < 2 ? NULL : make_state(comm, size);
}

/* NULL: not for us. The same at all ranks. */
static struct state *state_of(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || !hold_key())
        return NULL;
    if (__atomic_load_n(&leaving, __ATOMIC_RELAXED) != NULL)
        release_left(0);
    struct state *state = find_state(comm);
    let_key_go();
    return state != NULL && (state->seats != NULL || state->error != MPI_SUCCESS) ? state : NULL;
}

#endif
