/* The library calls of "one processor per layer" (L5), over denrei's rings and pools.
 *
 * Each layer is a thread with a number, started by p_startproc. A queue has one reading and one
 * writing layer; each opens its end by the queue's name, in any order, and only the thread that
 * opened an end uses it. A queue lasts until the threads that opened its two ends have ended; then its name is
 * free for another, and what is left in it is lost. A layer allocates from its own pool; any thread frees.
 *
 * What C runs when a thread has returned, destructors of its data (pthread_key_create) and functions of atexit, may free
 * buffers; what the thread had opened is gone, and the other calls fail there.
 *
 * Link with libdenrei_layers_c.a -lpthread -ldl -lm, or with libdenrei_layers_c.so.
 */
#ifndef DENREI_LAYERS_H
#define DENREI_LAYERS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Primitives that a queue holds. */
#define P_QUEUE_MAX 1024
/* Octets of the largest buffer. */
#define P_BUFFER_MAX 131072
/* Layers that a program starts, those that have ended included. */
#define P_LAYERS_MAX 1024

/* Starts a layer: a thread that runs main_function, on a core of its own as long as there are any.
 * Returns its number (0, 1, ...), or -1: main_function is NULL, P_LAYERS_MAX were started, or there is no
 * thread to be had. A layer ends when main_function returns: pthread_exit in it ends the program. */
int p_startproc(void (*main_function)(void));

/* Waits until a layer has returned from its main function. 0, or -1: no such layer, waited for
 * already, or the caller itself. (Not in the paper, whose layers never end.) */
int p_waitproc(int layer);

/* The number of the layer that calls, or -1: not called by a layer. */
int p_self(void);

/* Opens the end of a queue that the caller will read / write. Returns its identifier, valid in this
 * thread, or -1: no name, or that end is open already. */
int p_cremsgq_r(const char *name);
int p_cremsgq_s(const char *name);

/* Puts a primitive at the end of a queue: 0, or -1: the queue is full (try again), the primitive is
 * NULL, or `queue` is no queue that this thread writes. If its reader has ended nobody takes what is put. */
int p_putmsg(int queue, void *primitive);

/* Takes the first primitive of a queue, or NULL: the queue is empty, or no queue that this thread
 * reads. */
void *p_getmsg(int queue);

/* A buffer of at least `size` octets from the pool of `layer`, which has to be the caller, or NULL:
 * it is not, or all are in use (try again when some have been freed), or `size` is above
 * P_BUFFER_MAX. Aligned to 64 octets. */
void *p_galloc(int layer, size_t size);

/* Frees a buffer, in any thread. NULL is nothing. A buffer that is freed twice ends the program with
 * a message, as long as p_galloc has not given it out again and its layer has not ended: after that the memory is
 * the system's again, and a second p_free of it undefined, as is one by two threads at once. Buffers go home in
 * batches: a thread that frees and then neither frees, allocates nor reads an empty queue for long calls p_flush. */
void p_free(void *buffer);
void p_flush(void);

#ifdef __cplusplus
}
#endif

#endif
