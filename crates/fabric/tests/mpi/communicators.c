/* What the library does with communicators is not seen by the application: functions that copy attributes are not
 * called, there may be as many communicators as with the MPI alone, which has room for 2,048, and one may be freed
 * whose operations are under way. Run under mpiexec. */
#include "check.h"

enum { MANY = 1200 };
static int copies;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static void bcast(MPI_Comm comm) {
    int token = rank == 0 ? 77 : 0;
    MPI_Bcast(&token, 1, MPI_INT, 0, comm);
    CHECK("a token", token == 77);
}

/* The MPI lets go of it and its attributes when the last operation is over: MPICH under its lock, with threads. */
static void free_while_busy(void) {
    static int numbers[20000];
    MPI_Comm comm;
    MPI_Request requests[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int turn = 0; turn < 20; turn++)
        bcast(comm);
    numbers[0] = rank;
    MPI_Ibarrier(comm, &requests[0]);
    MPI_Ibcast(numbers, 20000, MPI_INT, 0, comm, &requests[1]);
    MPI_Comm_free(&comm);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK("what came after its communicator was freed", numbers[0] == 0);
}

int main(int argc, char **argv) {
    static MPI_Comm comms[MANY];
    int key, threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(comms[0], key, NULL);
    /* Both ways. */
    for (int turn = 0; turn < 20; turn++)
        bcast(comms[0]);
    CHECK("the number of copies", copies == 0);
    for (int i = 1; i < MANY; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        bcast(comms[i]);
    }
    for (int i = 0; i < MANY; i++)
        MPI_Comm_free(&comms[i]);
    for (int i = 0; i < 100; i++)
        free_while_busy();
    if (rank == 0)
        printf("%d ranks: nothing is seen\n", size);
    MPI_Finalize();
    return 0;
}
