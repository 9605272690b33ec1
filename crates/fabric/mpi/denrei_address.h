/* The addresses of groups. */
#ifndef DENREI_ADDRESS_H
#define DENREI_ADDRESS_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Room for an address as text. */
#define ADDRESS 64

/* A group's address that nobody else is likely to have: administratively scoped (RFC 2365). */
static void choose_address(char *text) {
    static unsigned count;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mix = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20 ^ (uint64_t)getpid() << 40;
    mix = (mix + __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED)) * 0x9e3779b97f4a7c15u;
    snprintf(text, ADDRESS, "239.%u.%u.%u:%u", 193 + (unsigned)(mix >> 56) % 58, (unsigned)(mix >> 48) & 255,
             1 + (unsigned)(mix >> 40) % 254, 20000 + (unsigned)(mix >> 24) % 10000);
}

#endif
