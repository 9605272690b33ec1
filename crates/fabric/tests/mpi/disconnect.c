/* Who has let go of the others by MPI_Comm_disconnect ends without them, while they call the MPI no more. Two ranks
 * start two; the first argument is a file, which is gone when the last of these has ended. Run under mpiexec with
 * DENREI_MPI_USE=always. */
#include "check.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 20, PATIENCE_S = 20 };

static void pause_ms(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

int main(int argc, char **argv) {
    MPI_Comm parent, inter, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    int is_child = parent != MPI_COMM_NULL;
    if (is_child)
        inter = parent;
    else
        MPI_Comm_spawn(argv[0], argv + 1, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(inter, is_child, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    for (int call = 0; call < CALLS; call++) {
        int token = rank == call % size ? call : -1;
        MPI_Bcast(&token, 1, MPI_INT, call % size, all);
        CHECK("a token", token == call);
    }
    MPI_Comm_disconnect(&inter);
    if (is_child) /* After the others, who do not come back to it. */
        pause_ms(500);
    MPI_Comm_disconnect(&all);
    for (int i = 0; !is_child && i < PATIENCE_S * 100 && access(argv[1], F_OK) == 0; i++)
        pause_ms(10);
    CHECK("the end of those that were started", is_child || access(argv[1], F_OK) != 0);
    MPI_Finalize();
    if (is_child && rank == size - 1)
        unlink(argv[1]);
    if (!is_child && rank == 0)
        printf("all have ended by themselves\n");
    return 0;
}
