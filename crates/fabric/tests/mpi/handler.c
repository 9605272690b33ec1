/* Who is told of a lost peer. handler WHEN HOW: the last rank ends itself, HOW is kill, or hangs, HOW is stop, before the
 * first barrier or after the second, WHEN is first or later; the others wait in the next one. Their own handler has to be
 * called, with the communicator that they gave to the barrier. */
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank;

static void handle(MPI_Comm *comm, int *error, ...) {
    va_list more;
    va_start(more, error);
    va_end(more);
    printf("rank %d is told of %s\n", rank, *comm == MPI_COMM_WORLD ? "its communicator" : "a foreign communicator");
    fflush(stdout);
    /* The others speak as well, before the launcher ends them. */
    sleep(1);
    _exit(3);
}

int main(int argc, char **argv) {
    int size;
    MPI_Errhandler handler;
    int is_first = argc > 2 && strcmp(argv[1], "first") == 0;
    int death = argc > 2 && strcmp(argv[2], "stop") == 0 ? SIGSTOP : SIGKILL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int barrier = 0; !is_first && barrier < 2; barrier++)
        MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        raise(death);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d went on without the dead\n", rank);
    fflush(stdout);
    _exit(4);
}
