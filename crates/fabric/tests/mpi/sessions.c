/* An MPI that ends and begins anew: one session after the other, and in each the application has more attributes than in the
 * one before, so that one of them has the name that another one of the library's had. Run under mpiexec with
 * DENREI_MPI_USE=always. */
#include "check.h"

enum { SESSIONS = 3 };

#if MPI_VERSION >= 4
static void use(MPI_Comm comm, int number) {
    int token = rank == 1 ? number : -1, sum = 0, keys[2 * SESSIONS], values[2 * SESSIONS];
    for (int i = 0; i < 2 * number; i++) {
        values[i] = i;
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keys[i], NULL);
        MPI_Comm_set_attr(comm, keys[i], &values[i]);
    }
    MPI_Bcast(&token, 1, MPI_INT, 1, comm);
    CHECK("a token", token == number);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK("a sum", sum == size * (size - 1) / 2);
    MPI_Barrier(comm);
    for (int i = 0; i < 2 * number; i++) {
        CHECK("a value", values[i] == i);
        MPI_Comm_free_keyval(&keys[i]);
    }
}

static void live(int number) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "denrei", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    use(comm, number);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
}
#endif

int main(void) {
#if MPI_VERSION >= 4
    for (int number = 1; number <= SESSIONS; number++)
        live(number);
#endif
    if (rank == 0)
        printf("%d ranks: all sessions went well\n", size);
    return 0;
}
