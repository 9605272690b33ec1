/* What MPI programs do, with checked results, for MPIs without mpi4py. checks LARGEST: run by mpirun on
 * two ranks or more; LARGEST is the longest message, in bytes. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

static char *content(size_t len, int seed) {
    char *bytes = malloc(len + 1);
    CHECK("memory", bytes != NULL);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(i * 7 + i / 251 + seed);
    return bytes;
}

static void pingpong(int largest) {
    int lengths[] = {0, 1, 1000, 16384, 16385, 3000000, largest};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && rank < 2; i++) {
        int len = lengths[i];
        char *out = content(len, rank), *expected = content(len, 1 - rank), *in = calloc(1, len + 1);
        MPI_Status status;
        int count;
        if (rank == 0)
            MPI_Send(out, len, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
        MPI_Recv(in, len, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, &status);
        if (rank == 1)
            MPI_Send(out, len, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
        MPI_Get_count(&status, MPI_CHAR, &count);
        CHECK("a message", count == len && memcmp(in, expected, len) == 0);
        free(out);
        free(expected);
        free(in);
    }
}

static void halo(int len) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *own = content(len, rank), *l = content(len, left), *r = content(len, right);
    char *from_left = calloc(1, len), *from_right = calloc(1, len);
    for (int turn = 0; turn < 20; turn++) {
        MPI_Request requests[4];
        MPI_Irecv(from_left, len, MPI_CHAR, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(from_right, len, MPI_CHAR, right, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(own, len, MPI_CHAR, right, 1, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(own, len, MPI_CHAR, left, 2, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        CHECK("a halo", memcmp(from_left, l, len) == 0 && memcmp(from_right, r, len) == 0);
    }
    free(own), free(l), free(r), free(from_left), free(from_right);
}

static void collectives(int count) {
    int *own = malloc(sizeof(int) * count), *all = malloc(sizeof(int) * count * size);
    for (int i = 0; i < count; i++)
        own[i] = rank + i;
    MPI_Allreduce(own, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK("a sum", all[count - 1] == size * (size - 1) / 2 + size * (count - 1));
    MPI_Allgather(own, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int other = 0; other < size; other++)
        CHECK("a part", all[other * count] == other && all[other * count + count - 1] == other + count - 1);
    for (int root = 0; root < size; root++) {
        own[0] = rank == root ? 77 + root : 0;
        MPI_Bcast(own, count, MPI_INT, root, MPI_COMM_WORLD);
        CHECK("a broadcast", own[0] == 77 + root);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(own), free(all);
}

static void probes(void) {
    char *out = content(50000, 9), *in = calloc(1, 50000);
    MPI_Status status;
    MPI_Message message;
    MPI_Request request, requests[2];
    int count = 0, is_cancelled = 0;
    if (rank == 0) {
        for (int i = 0; i < 2; i++)
            MPI_Isend(out, 50000, MPI_CHAR, 1, 7 + i, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    if (rank == 1) {
        MPI_Probe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        CHECK("a probed message", count == 50000 && status.MPI_SOURCE == 0);
        MPI_Mprobe(0, 7, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(in, 50000, MPI_CHAR, &message, &status);
        CHECK("a matched message", memcmp(in, out, 50000) == 0);
        MPI_Recv(in, 50000, MPI_CHAR, 0, 8, MPI_COMM_WORLD, &status);
        MPI_Irecv(in, 4, MPI_CHAR, 0, 99, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        CHECK("a cancelled receive", is_cancelled);
    }
    free(out), free(in);
}

/* Put, get and accumulate: between fences, under locks, and between posts and starts. */
static void one_sided(int count) {
    enum { SUM_AT = 0, COUNTER_AT = 1, OWN_AT = 2 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    double *memory, *own = malloc(sizeof(double) * count), *got = calloc(count, sizeof(double)), one = 1, before = -1;
    CHECK("memory", MPI_Alloc_mem(sizeof(double) * (OWN_AT + count), MPI_INFO_NULL, &memory) == MPI_SUCCESS);
    memory[SUM_AT] = memory[COUNTER_AT] = 0;
    for (int i = 0; i < count; i++)
        own[i] = 1000 * rank + i;
    MPI_Win window;
    MPI_Win_create(memory, sizeof(double) * (OWN_AT + count), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window);

    MPI_Win_fence(0, window);
    MPI_Put(own, count, MPI_DOUBLE, right, OWN_AT, count, MPI_DOUBLE, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; i++)
        CHECK("what was put", memory[OWN_AT + i] == 1000 * left + i);
    MPI_Get(got, count, MPI_DOUBLE, right, OWN_AT, count, MPI_DOUBLE, window);
    MPI_Win_fence(0, window);
    CHECK("what was got", memcmp(got, own, sizeof(double) * count) == 0);

    for (int turn = 0; turn < 20; turn++) {
        MPI_Win_lock(turn % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Accumulate(&one, 1, MPI_DOUBLE, 0, SUM_AT, 1, MPI_DOUBLE, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Win_lock_all(0, window);
    MPI_Fetch_and_op(&one, &before, MPI_DOUBLE, 0, COUNTER_AT, MPI_SUM, window);
    MPI_Win_flush(0, window);
    CHECK("what was fetched", before >= 0 && before < size);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(got, 2, MPI_DOUBLE, 0, SUM_AT, 2, MPI_DOUBLE, window);
    MPI_Win_unlock(0, window);
    CHECK("a sum at one rank", got[SUM_AT] == 20.0 * size && got[COUNTER_AT] == size);
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Group world, origin, target;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &left, &origin);
    MPI_Group_incl(world, 1, &right, &target);
    MPI_Win_post(origin, 0, window);
    MPI_Win_start(target, 0, window);
    MPI_Accumulate(own, count, MPI_DOUBLE, right, OWN_AT, count, MPI_DOUBLE, MPI_SUM, window);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    for (int i = 0; i < count; i++)
        CHECK("what was added", memory[OWN_AT + i] == 2.0 * (1000 * left + i));
    MPI_Group_free(&world), MPI_Group_free(&origin), MPI_Group_free(&target);
    MPI_Win_free(&window);
    MPI_Free_mem(memory);
    free(own), free(got);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    pingpong(argc > 1 ? atoi(argv[1]) : 1 << 20);
    halo(8);
    halo(70000);
    collectives(1);
    collectives(100000);
    probes();
    one_sided(10);
    one_sided(200000);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: all checks hold\n", size);
    MPI_Finalize();
    return 0;
}
