/* What the variables say, and whether they say the same at all ranks of a communicator. */
#ifndef DENREI_WISHES_H
#define DENREI_WISHES_H

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a rank waits for the others' first call until it says what they may lack. */
#define PATIENCE_S 10
/* How long it looks without a pause. */
#define BUSY_S 1

static enum { AUTO, ALWAYS, NEVER } use = AUTO;
static int least_ranks = 3;

/* What a variable says, NULL if nothing. */
static const char *wish(const char *name) {
    const char *value = getenv(name);
    return value != NULL && *value != 0 ? value : NULL;
}

/* Said by one, or thousands would, where there is a world. */
static void say_what_is_ignored(const char *name, const char *value, const char *possible) {
    int is_world, rank = 0;
    PMPI_Initialized(&is_world);
    if (is_world)
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "denrei-mpi: %s=%s is not %s: the default is taken\n", name, value, possible);
}

static void read_wishes(void) {
    const char *how = wish("DENREI_MPI_USE"), *ranks = wish("DENREI_MPI_MIN_RANKS");
    if (how != NULL && strcmp(how, "always") == 0)
        use = ALWAYS;
    else if (how != NULL && strcmp(how, "never") == 0)
        use = NEVER;
    else if (how != NULL && strcmp(how, "auto") != 0)
        say_what_is_ignored("DENREI_MPI_USE", how, "auto, always or never");
    if (ranks == NULL)
        return;
    char *end;
    long least = strtol(ranks, &end, 10);
    if (*end == 0 && least > 1 && least <= INT_MAX)
        least_ranks = (int)least;
    else
        say_what_is_ignored("DENREI_MPI_MIN_RANKS", ranks, "a number from 2");
}

/* Said by some, or thousands would. */
static void say_who_is_missing(MPI_Comm comm) {
    static int is_said;
    int rank, size;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    if ((rank == 0 || rank == size / 2 || rank == size - 1) && !__atomic_exchange_n(&is_said, 1, __ATOMIC_RELAXED))
        fprintf(stderr,
                "denrei-mpi: rank %d of %d has waited %d s for the others' first collective call. If they have made "
                "it, they lack this library: LD_PRELOAD has to name libdenrei-mpi.so at all ranks or at none\n",
                rank, size, PATIENCE_S);
}

/* Whether all ranks wish the same. They come here at their first collective call, whatever they wish; those that lack
 * the library do not, and none of their own calls matches this one, as it does not block. */
static int agree_on_wishes(MPI_Comm comm, int *is_agreed) {
    int own[4] = {use, -use, least_ranks, -least_ranks}, least[4] = {0, 1}, is_done = 0;
    MPI_Request request;
    int result = PMPI_Iallreduce(own, least, 4, MPI_INT, MPI_MIN, comm, &request);
    double began = PMPI_Wtime(), waited = 0;
    while (result == MPI_SUCCESS && !is_done && waited < PATIENCE_S) {
        result = PMPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (waited < BUSY_S)
            sched_yield();
        else
            usleep(1000);
        waited = PMPI_Wtime() - began;
    }
    if (result == MPI_SUCCESS && !is_done) {
        say_who_is_missing(comm);
        result = PMPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    *is_agreed = result == MPI_SUCCESS && least[0] == -least[1] && least[2] == -least[3];
    return result;
}

/* Said once for each MPI_COMM_WORLD, about. */
static void say_what_differs(int rank) {
    static int is_said;
    if (rank == 0 && !__atomic_exchange_n(&is_said, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "denrei-mpi: DENREI_MPI_USE or DENREI_MPI_MIN_RANKS is not the same at all ranks: the MPI's own "
                        "collectives are used\n");
}

#endif
