/* What survivors do whose peer is gone. death KIND HOW: the last rank ends itself, HOW is kill, or hangs, HOW is stop; the
 * others wait in KIND. The MPI has to end the job: whoever goes on says so. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, got = 0, sum = 0;
    const char *kind = argc > 2 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1)
        raise(strcmp(how, "stop") == 0 ? SIGSTOP : SIGKILL);
    if (strcmp(kind, "any-source") == 0)
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(kind, "probe") == 0)
        MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(kind, "barrier") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (strcmp(kind, "allreduce") == 0)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d went on without the dead\n", rank);
    MPI_Finalize();
    return 0;
}
