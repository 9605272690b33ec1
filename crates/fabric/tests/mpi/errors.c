/* Calls that are wrong, under MPI_ERRORS_RETURN: MPI's names have to return what its profiling names do, at all
 * ranks, and the calls after them have to go well. Run under mpiexec with DENREI_MPI_USE=always; with an argument,
 * and without that, only what holds while the way is found. */
#include "check.h"

#include <string.h>

enum { MANY = 600000 };
static int from[MANY], to[MANY], counts[64], at[64], ones[64];

static int class_of(int error) {
    int class;
    MPI_Error_class(error, &class);
    return class;
}

/* What was left of a wrong call does not reach the next. */
static void all_is_well(void) {
    int sum = 0, token = rank == 0 ? 77 : 0;
    CHECK("an error", MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK("a sum", sum == size * (size - 1) / 2);
    CHECK("an error", MPI_Bcast(&token, 1, MPI_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK("a token", token == 77);
    CHECK("an error", MPI_Allgather(&rank, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK("a part", to[size - 1] == size - 1);
    CHECK("an error", MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
}

/* Wrong at all ranks alike. */
#define SAME(...)                                                                              \
    do {                                                                                       \
        int ours = class_of(MPI_##__VA_ARGS__), theirs = class_of(PMPI_##__VA_ARGS__);         \
        CHECK(#__VA_ARGS__, ours == theirs);                                                   \
        all_is_well();                                                                         \
    } while (0)

static void wrong_everywhere(MPI_Datatype uncommitted) {
    SAME(Allreduce(to, to, 4000, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(Allreduce(NULL, to, 4000, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(Allreduce(from, NULL, 4000, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(Allreduce(from, to, 4000, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD));
    SAME(Bcast(to, -1, MPI_INT, 0, MPI_COMM_WORLD));
    SAME(Bcast(NULL, 5, MPI_INT, 0, MPI_COMM_WORLD));
    SAME(Bcast(to, 10, uncommitted, 0, MPI_COMM_WORLD));
    SAME(Allgather(from, -1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD));
    SAME(Allgather(from, 1, MPI_INT, NULL, 1, MPI_INT, MPI_COMM_WORLD));
    SAME(Allgather(NULL, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD));
    SAME(Allgather(to + rank, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD));
    SAME(Allgather(from, 1, uncommitted, to, 1, uncommitted, MPI_COMM_WORLD));
    counts[size - 1] = -1;
    SAME(Allgatherv(from, 1, MPI_INT, to, counts, at, MPI_INT, MPI_COMM_WORLD));
    counts[size - 1] = 1;
}

/* The root alone finds it, or others alone do. */
static void wrong_somewhere(void) {
    int expected = rank == 1 ? MPI_SUCCESS : MPI_ERR_TRUNCATE;
    for (int count = 1000; count <= MANY; count *= 600) {
        int error = MPI_Bcast(to, rank == 1 ? count : count / 2, MPI_INT, 1, MPI_COMM_WORLD);
        CHECK("the class of a short MPI_Bcast", class_of(error) == expected);
        all_is_well();
    }
    int error = MPI_Allgatherv(from, rank == 1 ? 2 : 1, MPI_INT, to, ones, at, MPI_INT, MPI_COMM_WORLD);
    CHECK("success with a long part", error != MPI_SUCCESS);
    all_is_well();
}

/* One rank has less room, time and again: whatever the way is found by, it stays that of all. */
static void short_somewhere(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int turn = 1; turn <= 20; turn++) {
        int error = MPI_Bcast(to, rank == 1 ? 600 : 1000, MPI_INT, 0, comm);
        CHECK("the class of a short MPI_Bcast", class_of(error) == (rank == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
        to[0] = rank == 0 ? turn : 0;
        CHECK("an error", MPI_Bcast(to, 1000, MPI_INT, 0, comm) == MPI_SUCCESS);
        CHECK("what came", to[0] == turn);
    }
    MPI_Comm_free(&comm);
}

/* Null is where addresses begin that a type has in it. */
static void absolute(void) {
    MPI_Aint where;
    MPI_Datatype type;
    MPI_Get_address(to, &where);
    MPI_Type_create_hindexed(1, (int[]){100}, &where, MPI_INT, &type);
    MPI_Type_commit(&type);
    memset(to, rank == 0 ? 5 : 0, sizeof to);
    CHECK("an error", MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK("what came", to[0] == 0x05050505 && to[99] == 0x05050505);
    MPI_Type_free(&type);
}

int main(int argc, char **argv) {
    MPI_Datatype uncommitted;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 64; i++)
        at[i] = i, counts[i] = ones[i] = 1;
    MPI_Type_contiguous(3, MPI_INT, &uncommitted);
    all_is_well();
    if (argc == 1) {
        wrong_everywhere(uncommitted);
        wrong_somewhere();
    }
    short_somewhere();
    absolute();
    all_is_well();
    if (rank == 0)
        printf("%d ranks: all errors agree\n", size);
    MPI_Finalize();
    return 0;
}
