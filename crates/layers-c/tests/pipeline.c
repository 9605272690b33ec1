/* Three layers hand buffers down and up again, as the paper's programs do. */
#include "check.h"
#include "denrei_layers.h"

#include <string.h>

#define COUNT 20000
#define SIZE 1000

struct primitive {
    int number;
    int hops;
    char data[SIZE];
};

static void put(int queue, void *primitive) {
    while (p_putmsg(queue, primitive) == -1) {
        /* Full: keep it and try again. */
    }
}

static void top(void) {
    int self = p_self();
    int down = p_cremsgq_s("top-middle"), up = p_cremsgq_r("middle-top");
    int sent = 0, received = 0;
    CHECK(self >= 0 && down >= 0 && up >= 0);
    CHECK(p_cremsgq_s("top-middle") == -1);
    CHECK(p_galloc(self + 1, 10) == NULL && p_galloc(self, P_BUFFER_MAX + 1) == NULL);
    while (received < COUNT) {
        struct primitive *primitive = sent < COUNT ? p_galloc(self, sizeof *primitive) : NULL;
        if (primitive) {
            CHECK(((size_t)primitive & 63) == 0);
            primitive->number = sent++;
            primitive->hops = 0;
            memset(primitive->data, primitive->number & 0xff, SIZE);
            put(down, primitive);
        }
        while ((primitive = p_getmsg(up))) {
            CHECK(primitive->number == received && primitive->hops == 3);
            CHECK(primitive->data[SIZE - 1] == (char)(received & 0xff));
            received++;
            p_free(primitive);
        }
    }
}

static void middle(void) {
    int from_top = p_cremsgq_r("top-middle"), to_top = p_cremsgq_s("middle-top");
    int to_bottom = p_cremsgq_s("middle-bottom"), from_bottom = p_cremsgq_r("bottom-middle");
    int returned = 0;
    CHECK(from_top >= 0 && to_top >= 0 && to_bottom >= 0 && from_bottom >= 0);
    CHECK(p_getmsg(to_top) == NULL && p_putmsg(from_top, &returned) == -1 && p_getmsg(99) == NULL);
    while (returned < COUNT) {
        struct primitive *primitive = p_getmsg(from_top);
        if (primitive) {
            primitive->hops++;
            put(to_bottom, primitive);
        }
        primitive = p_getmsg(from_bottom);
        if (primitive) {
            primitive->hops++;
            put(to_top, primitive);
            returned++;
        }
    }
}

/* Sends back a copy from its own pool and frees the original: a foreign free. */
static void bottom(void) {
    int self = p_self(), in = p_cremsgq_r("middle-bottom"), out = p_cremsgq_s("bottom-middle");
    int returned = 0;
    while (returned < COUNT) {
        struct primitive *original = p_getmsg(in), *copy;
        if (!original) {
            continue;
        }
        while (!(copy = p_galloc(self, sizeof *copy))) {
            /* Exhausted: wait for what the top frees. */
        }
        memcpy(copy, original, sizeof *copy);
        copy->hops++;
        p_free(original);
        put(out, copy);
        returned++;
    }
}

int main(int argc, char **argv) {
    (void)argv;
    CHECK(p_self() == -1 && p_galloc(0, 10) == NULL);
    CHECK(p_startproc(NULL) == -1 && p_cremsgq_r(NULL) == -1 && p_waitproc(7) == -1);
    p_free(NULL);
    int layers[] = {p_startproc(top), p_startproc(middle), p_startproc(bottom)};
    for (int i = 0; i < 3; i++) {
        CHECK(layers[i] == i && p_waitproc(layers[i]) == 0 && p_waitproc(layers[i]) == -1);
    }
    printf("%d primitives came back\n", COUNT);
    return argc - 1;
}
