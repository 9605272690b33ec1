/* What `denrei bench mpi` runs under an MPI: one benchmark over some sizes, in the manner of the OSU
 * micro-benchmarks. Compiled on demand with the MPI's own mpicc.
 *
 * bench KIND SECONDS SIZE...: KIND is latency (round trips of two ranks), bandwidth (64 messages one
 * way, then an answer), overlap (16 messages one way, while both sides compute), bcast, gather, allreduce,
 * or barrier. Of each size rank 0 prints a line
 *   RESULT size n median_us p99_us msgs_per_s cpu_us_per_msg
 * Latencies are of half a round trip, of a window, or of a collective operation until the last rank is
 * through with it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define WINDOW 64
/* Messages that are on their way during a computation, and how long it takes between two looks at them. */
#define OVERLAPPED 16
#define COMPUTES_S 0.01
#define MOST 100000
#define LEAST 5
#define WARM_UP 10

static int rank, size;
static char *out, *in;
static double times[MOST], slowest[MOST];

static void exchange(int bytes) {
    if (rank == 0) {
        MPI_Send(out, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(in, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
}

static void window(int bytes) {
    MPI_Request requests[WINDOW];
    char answer = 0;
    if (rank == 0) {
        for (int i = 0; i < WINDOW; i++)
            MPI_Isend(out, bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(&answer, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        for (int i = 0; i < WINDOW; i++)
            MPI_Irecv(in, bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Send(&answer, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
    }
}

static void compute(void) {
    static volatile double result = 1;
    double until = MPI_Wtime() + COMPUTES_S;
    while (MPI_Wtime() < until)
        for (int i = 0; i < 1000; i++)
            result = result * 1.0000001 + 1e-9;
}

static void overlapped(int bytes) {
    MPI_Request requests[OVERLAPPED];
    char answer = 0;
    int done = 0;
    if (rank > 1)
        return;
    for (int i = 0; i < OVERLAPPED; i++) {
        if (rank == 0)
            MPI_Isend(out, bytes, MPI_CHAR, 1, 4, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(in, bytes, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &requests[i]);
    }
    while (!done) {
        compute();
        MPI_Testall(OVERLAPPED, requests, &done, MPI_STATUSES_IGNORE);
    }
    if (rank == 0)
        MPI_Recv(&answer, 1, MPI_CHAR, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&answer, 1, MPI_CHAR, 0, 5, MPI_COMM_WORLD);
}

static void bcast(int bytes) { MPI_Bcast(out, bytes, MPI_CHAR, 0, MPI_COMM_WORLD); }

static void gather(int bytes) { MPI_Gather(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, 0, MPI_COMM_WORLD); }

static void allreduce(int bytes) {
    MPI_Allreduce(out, in, bytes / 4 > 0 ? bytes / 4 : 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(int bytes) {
    (void)bytes;
    MPI_Barrier(MPI_COMM_WORLD);
}

static const struct kind {
    const char *name;
    void (*turn)(int bytes);
    /* Messages of one turn, parts of its time that a latency is, whether all ranks begin together. */
    int messages, parts, collective;
} kinds[] = {
    {"latency", exchange, 2, 2, 0},      {"bandwidth", window, WINDOW, 1, 0},
    {"overlap", overlapped, OVERLAPPED, 1, 0}, {"bcast", bcast, 1, 1, 1},
    {"gather", gather, 1, 1, 1},         {"allreduce", allreduce, 1, 1, 1},
    {"barrier", barrier, 1, 1, 1},
};

static double cpu_us(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void run_turns(const struct kind *kind, int bytes, int turns) {
    for (int i = 0; i < turns; i++) {
        if (kind->collective)
            MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        kind->turn(bytes);
        times[i] = (MPI_Wtime() - began) * 1e6;
    }
}

/* Turns that fit into the time there is, the same at all ranks: from a batch that takes a tenth of it at
 * least, so that one pause does not make all the difference. */
static int turns_in(double seconds, const struct kind *kind, int bytes) {
    /* One turn of a computation may take long. */
    int count = kind->turn == overlapped ? 1 : WARM_UP, enough = 0;
    while (!enough) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        run_turns(kind, bytes, count);
        double elapsed = MPI_Wtime() - began + 1e-9, turns = seconds * count / elapsed;
        enough = elapsed > seconds / 10 || count >= MOST / 4;
        if (enough)
            count = turns > MOST ? MOST : turns < LEAST ? LEAST : (int)turns;
        else
            count *= 4;
        int agreed[2] = {count, enough};
        MPI_Bcast(agreed, 2, MPI_INT, 0, MPI_COMM_WORLD);
        count = agreed[0], enough = agreed[1];
    }
    return count;
}

static void measure(const struct kind *kind, double seconds, int bytes) {
    int turns = turns_in(seconds, kind, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double cpu = cpu_us(), began = MPI_Wtime(), all_cpu = 0;
    run_turns(kind, bytes, turns);
    double elapsed = MPI_Wtime() - began;
    cpu = cpu_us() - cpu;
    MPI_Reduce(&cpu, &all_cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (kind->collective)
        MPI_Reduce(times, slowest, turns, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    else
        memcpy(slowest, times, turns * sizeof *times);
    if (rank != 0)
        return;
    qsort(slowest, turns, sizeof *slowest, ascending);
    double messages = (double)turns * kind->messages;
    printf("RESULT %d %d %.3f %.3f %.1f %.3f\n", bytes, turns, slowest[turns / 2] / kind->parts,
           slowest[(turns - 1) * 99 / 100] / kind->parts, messages / elapsed, all_cpu / messages);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const struct kind *kind = NULL;
    int largest = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; argc > 3 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, argv[1]) == 0)
            kind = &kinds[i];
    if (kind == NULL || size < 2) {
        fprintf(stderr, "usage: bench KIND SECONDS SIZE..., with two ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 3; i < argc; i++)
        largest = atoi(argv[i]) > largest ? atoi(argv[i]) : largest;
    out = calloc(1, largest + 4);
    in = calloc(size, largest + 4);
    if (out == NULL || in == NULL) {
        fprintf(stderr, "no memory for messages of %d bytes\n", largest);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 3; i < argc; i++)
        measure(kind, atof(argv[2]), atoi(argv[i]));
    MPI_Finalize();
    return 0;
}
