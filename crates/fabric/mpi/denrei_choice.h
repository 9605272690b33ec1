/* What is remembered of calls, to choose the way of those that follow. */
#ifndef DENREI_CHOICE_H
#define DENREI_CHOICE_H

#include <stddef.h>

/* Calls of each way, in a row, that are timed. The one before them warms up, and waits for who is late. */
#define TRIALS 4
/* Groups have to be faster by this: what they have left to do after a call is not in its time. */
#define WORTH_IT 0.9
/* Powers of two of bytes. */
#define CLASSES 32

enum operation { BCAST, BARRIER, ALLGATHER, ALLREDUCE, OPERATIONS };
enum way { OWN_OF_MPI, GROUP, WAYS };

struct choice {
    int calls, is_made;
    enum way way;
    double seconds[WAYS][TRIALS];
};

static int class_of(size_t bytes) {
    int class = 0;
    while (bytes >>= 1)
        class++;
    return class < CLASSES ? class : CLASSES - 1;
}

/* What a turn of the scheduler's adds decides nothing. */
static double fastest(const double *seconds) {
    double least = seconds[0];
    for (int i = 1; i < TRIALS; i++)
        least = seconds[i] < least ? seconds[i] : least;
    return least;
}

#endif
