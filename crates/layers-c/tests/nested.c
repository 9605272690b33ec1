/* A layer starts others: they have the cores that they would have had from main. */
#define _GNU_SOURCE
#include "check.h"
#include "denrei_layers.h"

#include <sched.h>
#include <stdatomic.h>

static cpu_set_t all, seen[2];
static int cores;
static atomic_int has_waited;

static void inner(void) {
    CHECK(p_self() == 1 && sched_getaffinity(0, sizeof seen[1], &seen[1]) == 0);
}

/* Beyond the cores: anywhere. */
static void last(void) {
    cpu_set_t here;
    CHECK(sched_getaffinity(0, sizeof here, &here) == 0);
    CHECK(p_self() < cores || CPU_EQUAL(&here, &all));
}

static void outer(void) {
    CHECK(p_self() == 0 && sched_getaffinity(0, sizeof seen[0], &seen[0]) == 0);
    CHECK(p_waitproc(p_self()) == -1);
    has_waited = 1;
    CHECK(p_startproc(inner) == 1 && p_waitproc(1) == 0);
    for (int layer = 2; layer < cores + 2; layer++) {
        CHECK(p_startproc(last) == layer && p_waitproc(layer) == 0);
    }
}

static void nothing(void) {
}

int main(void) {
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    cores = CPU_COUNT(&all);
    CHECK(p_startproc(outer) == 0);
    while (!has_waited) {
        sched_yield();
    }
    CHECK(p_waitproc(0) == 0);
    CHECK(CPU_COUNT(&seen[0]) == 1);
    if (cores > 1) {
        CHECK(CPU_COUNT(&seen[1]) == 1 && !CPU_EQUAL(&seen[0], &seen[1]));
    }
    int layer, next = cores + 2;
    while ((layer = p_startproc(nothing)) != -1) {
        CHECK(layer == next++ && p_waitproc(layer) == 0);
    }
    CHECK(next == P_LAYERS_MAX);
    return 0;
}
