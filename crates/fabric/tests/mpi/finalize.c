/* The end of a program. finalize WHICH: some ranks leave a communicator behind, of which the last rank is no member; MPI_COMM_WORLD
 * has been used as well, WHICH is all, or has not, WHICH is some. Then calls are made where MPI_Finalize begins: in a
 * callback of MPI_COMM_SELF's attributes. Run under mpiexec with DENREI_MPI_USE=always. */
#include "check.h"

#include <string.h>

static void use(MPI_Comm comm) {
    int own, sum = 0;
    MPI_Comm_rank(comm, &own);
    for (int turn = 0; turn < 20; turn++) {
        int token = own == 0 ? turn : -1;
        MPI_Bcast(&token, 1, MPI_INT, 0, comm);
        CHECK("a token", token == turn);
    }
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_size(comm, &own);
    CHECK("a sum", sum == own * (own - 1) / 2);
    MPI_Barrier(comm);
}

static int is_called;

static int at_the_end(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    use(MPI_COMM_WORLD);
    is_called = 1;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int key;
    MPI_Comm part;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        use(MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank < size - 1 ? 0 : MPI_UNDEFINED, rank, &part);
    if (part != MPI_COMM_NULL)
        use(part);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Finalize();
    if (is_called)
        printf("rank %d has ended well\n", rank);
    return 0;
}
