/* What the programs that check an MPI share. */
#include <mpi.h>
#include <stdio.h>

static int rank, size;

#define CHECK(what, good)                                                               \
    do {                                                                                \
        if (!(good)) {                                                                  \
            fprintf(stderr, "rank %d, line %d: %s is wrong\n", rank, __LINE__, what);   \
            MPI_Abort(MPI_COMM_WORLD, 1);                                               \
        }                                                                               \
    } while (0)
