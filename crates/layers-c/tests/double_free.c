/* Frees a buffer twice: the library has to notice. */
#include "denrei_layers.h"

static void layer(void) {
    void *buffer = p_galloc(p_self(), 100);
    p_free(buffer);
    p_free(buffer);
}

int main(void) {
    return p_waitproc(p_startproc(layer));
}
