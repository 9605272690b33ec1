/* A queue's name is free again when those who had opened its ends have ended. */
#include "check.h"
#include "denrei_layers.h"

static int first, second;

static void writes(void) {
    int queue = p_cremsgq_s("queue");
    CHECK(queue >= 0 && p_putmsg(queue, &first) == 0);
    CHECK(p_cremsgq_s("queue") == -1);
}

/* Its writer has ended, and what that wrote is there. The queue is: another writer does not get it. */
static void reads(void) {
    int queue = p_cremsgq_r("queue");
    CHECK(queue >= 0 && p_cremsgq_s("queue") == -1);
    CHECK(p_getmsg(queue) == &first && p_getmsg(queue) == NULL);
}

/* Another queue, of the same name. */
static void has_both(void) {
    int from = p_cremsgq_r("queue"), to = p_cremsgq_s("queue");
    CHECK(from >= 0 && to >= 0 && p_getmsg(from) == NULL);
    CHECK(p_putmsg(to, &second) == 0 && p_getmsg(from) == &second);
    /* Left there: nobody gets it. */
    CHECK(p_putmsg(to, &second) == 0);
}

int main(void) {
    CHECK(p_waitproc(p_startproc(writes)) == 0);
    CHECK(p_waitproc(p_startproc(reads)) == 0);
    CHECK(p_waitproc(p_startproc(has_both)) == 0);
    CHECK(p_waitproc(p_startproc(has_both)) == 0);
    return 0;
}
