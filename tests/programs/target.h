/* What every C target shares: a generator of random numbers, files without stdio, and the final pause.
 *
 * Nothing here calls malloc: a target's heap holds what the target says it holds and nothing else.
 */
#ifndef TARGET_H
#define TARGET_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* xorshift64*: a state of 0 would stay 0. */
static inline uint64_t draw(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1DULL;
}

static inline uint64_t seeded(uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 0x1234567ULL;
    return state ? state : 1;
}

/* A number in [low, high]. */
static inline size_t between(uint64_t *state, size_t low, size_t high)
{
    return low + (size_t)(draw(state) % (high - low + 1));
}

static inline void *pages(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

static inline void write_all(int file, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        ssize_t written = write(file, from, size);
        if (written <= 0)
            abort();
        from += written;
        size -= (size_t)written;
    }
}

static inline void write_file(const char *path, const void *data, size_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        abort();
    write_all(file, data, size);
    close(file);
}

static inline void block_break(void)
{
    char *end = sbrk(0);
    char *page = (char *)(((uintptr_t)end + 4095) & ~(uintptr_t)4095);
    mmap(page + 4096 * 8, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

/* The parent waits until this thread sits in pause(2). */
static inline void park(void)
{
    for (;;)
        pause();
}

#endif
