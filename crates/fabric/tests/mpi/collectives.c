/* Collective operations through MPI's names, which libdenrei-mpi.so stands behind, against the same
 * through its profiling names: every root, types with gaps, in place, parts of different lengths, other
 * communicators, several threads. Run under mpiexec with DENREI_MPI_USE=always. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void fill(int *numbers, int count, int seed) {
    for (int i = 0; i < count; i++)
        numbers[i] = i * 7 + seed * 1000003;
}

static int *numbers(int count, int seed) {
    int *made = malloc(sizeof(int) * (count + 1));
    fill(made, count, seed);
    return made;
}

static void bcasts(MPI_Comm comm, int count, MPI_Datatype type, int extent) {
    int own, all;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &all);
    for (int root = 0; root < all; root++) {
        int *ours = numbers(count * extent, own == root ? 5 : own + 50);
        int *theirs = numbers(count * extent, own == root ? 5 : own + 50);
        MPI_Bcast(ours, count, type, root, comm);
        PMPI_Bcast(theirs, count, type, root, comm);
        CHECK("MPI_Bcast", memcmp(ours, theirs, sizeof(int) * count * extent) == 0);
        free(ours);
        free(theirs);
    }
}

static void sums(MPI_Comm comm, int count) {
    int *own = numbers(count, rank), *ours = numbers(count, 1), *theirs = numbers(count, 2);
    MPI_Allreduce(own, ours, count, MPI_INT, MPI_SUM, comm);
    PMPI_Allreduce(own, theirs, count, MPI_INT, MPI_SUM, comm);
    CHECK("MPI_Allreduce", memcmp(ours, theirs, sizeof(int) * count) == 0);
    MPI_Allreduce(MPI_IN_PLACE, own, count, MPI_INT, MPI_SUM, comm);
    CHECK("MPI_Allreduce in place", memcmp(own, theirs, sizeof(int) * count) == 0);
    free(own);
    free(ours);
    free(theirs);
}

static void gathers(int count) {
    int *own = numbers(count, rank), *ours = numbers(count * size, 1), *theirs = numbers(count * size, 2);
    MPI_Allgather(own, count, MPI_INT, ours, count, MPI_INT, MPI_COMM_WORLD);
    PMPI_Allgather(own, count, MPI_INT, theirs, count, MPI_INT, MPI_COMM_WORLD);
    CHECK("MPI_Allgather", memcmp(ours, theirs, sizeof(int) * count * size) == 0);
    fill(ours + rank * count, count, rank);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, ours, count, MPI_INT, MPI_COMM_WORLD);
    CHECK("MPI_Allgather in place", memcmp(ours, theirs, sizeof(int) * count * size) == 0);
    int counts[64], at[64], room = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = i % 2 == 0 ? count : i;
        at[i] = room + i;
        room = at[i] + counts[i];
    }
    int *mine = numbers(room, 3), *others = numbers(room, 3);
    MPI_Allgatherv(own, counts[rank], MPI_INT, mine, counts, at, MPI_INT, MPI_COMM_WORLD);
    PMPI_Allgatherv(own, counts[rank], MPI_INT, others, counts, at, MPI_INT, MPI_COMM_WORLD);
    CHECK("MPI_Allgatherv", memcmp(mine, others, sizeof(int) * room) == 0);
    free(own);
    free(ours);
    free(theirs);
    free(mine);
    free(others);
}

/* Elements that lie one before the other, at one rank in a row, at the others with gaps. */
static void backward_gathers(int count) {
    MPI_Datatype type;
    int room = count * size * 3, *own = numbers(room, rank), *ours = numbers(room, 1), *theirs = numbers(room, 1);
    MPI_Type_create_resized(MPI_INT, 0, -(MPI_Aint)sizeof(int) * (rank % 3 + 1), &type);
    MPI_Type_commit(&type);
    MPI_Allgather(own + room - 1, count, type, ours + room - 1, count, type, MPI_COMM_WORLD);
    PMPI_Allgather(own + room - 1, count, type, theirs + room - 1, count, type, MPI_COMM_WORLD);
    CHECK("MPI_Allgather backward", memcmp(ours, theirs, sizeof(int) * room) == 0);
    MPI_Type_free(&type);
    free(own);
    free(ours);
    free(theirs);
}

/* Who waits for a group makes the MPI's progress: rank 0 needs a large message of rank 1's first. */
static void others_get_what_they_need(void) {
    enum { LARGE = 1 << 20 };
    int *data = numbers(LARGE, rank), token = rank;
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 1)
        MPI_Isend(data, LARGE, MPI_INT, 0, 9, MPI_COMM_WORLD, &request);
    if (rank == 0)
        MPI_Recv(data, LARGE, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Bcast(&token, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK("a token", token == 0);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(data);
}

static void *use_own_communicator(void *of) {
    MPI_Comm comm = *(MPI_Comm *)of;
    for (int turn = 0; turn < 10; turn++) {
        int sum = 0;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK("a sum of threads", sum == size * (size - 1) / 2);
        MPI_Barrier(comm);
    }
    return NULL;
}

static void threads(void) {
    MPI_Comm comms[2];
    pthread_t other;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    pthread_create(&other, NULL, use_own_communicator, &comms[1]);
    use_own_communicator(&comms[0]);
    pthread_join(other, NULL);
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
}

/* Freeing waits for nobody, as with the MPI alone: not in the order of others, and not until they have come to it. */
static void freed_in_any_order(void) {
    MPI_Comm comms[3];
    int token = rank;
    for (int i = 0; i < 3; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        bcasts(comms[i], 4, MPI_INT, 1);
    }
    MPI_Comm_free(&comms[rank % 2]);
    MPI_Comm_free(&comms[1 - rank % 2]);
    if (rank == 1)
        MPI_Ssend(&token, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
    MPI_Comm_free(&comms[2]);
    if (rank == 0)
        MPI_Recv(&token, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* More groups than a process can hear: those beyond are left to the MPI, at once. */
static void many(void) {
    enum { MANY = 40, LAST = 10 };
    MPI_Comm comms[MANY];
    double began = 0;
    for (int i = 0; i < MANY; i++) {
        if (i == MANY - LAST)
            began = MPI_Wtime();
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        bcasts(comms[i], 4, MPI_INT, 1);
    }
    CHECK("the time that it takes", MPI_Wtime() - began < 0.1 * LAST * size);
    for (int i = 0; i < MANY; i++)
        MPI_Comm_free(&comms[i]);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Datatype sparse;
    MPI_Comm part;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < 3; turn++)
        MPI_Barrier(MPI_COMM_WORLD);
    bcasts(MPI_COMM_WORLD, 4, MPI_INT, 1);
    bcasts(MPI_COMM_WORLD, 300000, MPI_INT, 1);
    bcasts(MPI_COMM_WORLD, 0, MPI_INT, 1);
    /* Two integers of three, in the other order. */
    MPI_Type_indexed(2, (int[]){1, 1}, (int[]){2, 0}, MPI_INT, &sparse);
    MPI_Type_commit(&sparse);
    bcasts(MPI_COMM_WORLD, 1000, sparse, 3);
    MPI_Type_free(&sparse);
    sums(MPI_COMM_WORLD, 1);
    sums(MPI_COMM_WORLD, 100000);
    gathers(3);
    gathers(50000);
    backward_gathers(3);
    backward_gathers(5000);
    others_get_what_they_need();
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, -rank, &part);
    if (part != MPI_COMM_NULL) {
        bcasts(part, 1000, MPI_INT, 1);
        MPI_Comm_free(&part);
    }
    if (provided == MPI_THREAD_MULTIPLE)
        threads();
    freed_in_any_order();
    many();
    bcasts(MPI_COMM_WORLD, 4, MPI_INT, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: all collectives agree\n", size);
    MPI_Finalize();
    return 0;
}
