/* What can be told of arguments before an operation. Calls that are wrong at all ranks alike are left to the MPI,
 * which names the error at each of them: of a group's it would find some at the root only. */
#ifndef DENREI_ARGUMENTS_H
#define DENREI_ARGUMENTS_H

#include <limits.h>
#include <mpi.h>
#include <stddef.h>

/* Whether memory of a type is what travels: no gaps, no other order. */
static int is_plain(MPI_Datatype type) {
    int integers, addresses, types, combiner, size;
    MPI_Aint lower, extent;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &lower, &extent);
    return combiner == MPI_COMBINER_NAMED && lower == 0 && extent == size;
}

/* Bytes of `count` elements; 0: nothing, or not for us. */
static size_t bytes_of(MPI_Count count, MPI_Datatype type) {
    int size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS || size <= 0)
        return 0;
    return count > INT_MAX / size ? 0 : (size_t)count * size;
}

/* Of all ranks' counts; -1: one is negative. */
static MPI_Count sum(const int *counts, int size) {
    MPI_Count all = 0;
    for (int rank = 0; rank < size; rank++) {
        if (counts[rank] < 0)
            return -1;
        all += counts[rank];
    }
    return all;
}

/* Whether elements lie at address 0, which those of types with absolute addresses do not. */
static int is_nowhere(const void *buffer, MPI_Datatype type) {
    MPI_Aint lower = 0, extent;
    return buffer == NULL && PMPI_Type_get_true_extent(type, &lower, &extent) == MPI_SUCCESS && lower == 0;
}

/* Whether elements lie nowhere, or their type is not committed. `quiet` is a communicator that returns errors. */
static int is_wrong(const void *buffer, MPI_Datatype type, MPI_Comm quiet) {
    int at = 0;
    char none[64];
    if (is_nowhere(buffer, type))
        return 1;
    return quiet != MPI_COMM_NULL && !is_plain(type) &&
           PMPI_Pack(buffer, 0, type, none, sizeof none, &at, quiet) != MPI_SUCCESS;
}

/* The same of what one rank gives to all, which must not be its part of the result: MPICH looks. */
static int is_wrong_part(const void *from, int out_count, MPI_Datatype out_type, const void *to, MPI_Aint at,
                         MPI_Datatype type, MPI_Comm quiet) {
    MPI_Aint lower, extent;
    if (from == MPI_IN_PLACE || bytes_of(out_count, out_type) == 0)
        return 0;
    PMPI_Type_get_extent(type, &lower, &extent);
#ifdef MPICH_VERSION
    if (from == (const char *)to + at * extent)
        return 1;
#else
    (void)to, (void)at;
#endif
    return is_wrong(from, out_type, quiet);
}

#endif
