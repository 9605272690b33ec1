/* Destructors of a thread's data and functions of atexit run when the thread has let go of what it opened: they may
 * free buffers, and are told that there is nothing else. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include "denrei_layers.h"

#include <pthread.h>
#include <unistd.h>

static pthread_key_t key;
static void *kept;
static int endings;

static void nothing_left(void) {
    CHECK(p_self() == -1 && p_galloc(0, 64) == NULL);
    CHECK(p_putmsg(0, &key) == -1 && p_getmsg(1) == NULL);
    CHECK(p_cremsgq_r("late") == -1 && p_cremsgq_s("late") == -1);
    p_flush();
    endings++;
}

static void of_thread(void *buffer) {
    p_free(buffer);
    nothing_left();
}

static void of_program(void) {
    p_free(kept);
    nothing_left();
    CHECK(endings == 2);
    _exit(42);
}

static void layer(void) {
    CHECK(p_cremsgq_s("down") == 0 && p_cremsgq_r("up") == 1);
    kept = p_galloc(p_self(), 64);
    CHECK(kept != NULL && pthread_setspecific(key, p_galloc(p_self(), 64)) == 0);
}

int main(void) {
    CHECK(pthread_key_create(&key, of_thread) == 0 && atexit(of_program) == 0);
    CHECK(p_startproc(layer) == 0 && p_waitproc(0) == 0 && endings == 1);
    /* The main thread has opened something as well; what nobody could keep is to be had. */
    CHECK(p_cremsgq_r("late") == 0);
    return 0;
}
