/* A large C process to measure on: millions of malloc chunks of 16 to LARGEST bytes (400) that point to each other, half of
 * them freed at random.
 *
 * Usage: target_glibc [CHUNKS] [SEED] [LARGEST]
 * Prints one line of JSON when it is ready: {"pid", "chunks", "seed"}. Then it beats once a millisecond and answers each
 * line on standard input with the longest pause between two beats since the last answer, in seconds. It ends when its
 * standard input does. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t state;
/* Where others see it: it is to be reached for as long as this runs. */
void **held;

/* xorshift64*, so that a seed gives the same heap everywhere. */
static uint64_t next_random(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ULL;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void fill(size_t count, size_t largest)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = 16 + next_random() % (largest - 15);
        held[i] = malloc(size);
        if (held[i] == NULL)
            exit(1);
        memset(held[i], 1, size);
        /* Each has the address of an earlier one, mostly of one of the last hundred: references to follow. */
        size_t back = 1 + next_random() % (next_random() % 16 ? 100 : i + 1);
        if (back <= i)
            *(void **)held[i] = held[i - back];
    }
}

static void free_half(size_t count)
{
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = next_random() % (i + 1);
        void *kept = held[i];
        held[i] = held[other];
        held[other] = kept;
    }
    for (size_t i = 0; i < count / 2; i++) {
        free(held[i]);
        held[i] = NULL;
    }
}

static void beat(void)
{
    double longest = 0, last = now();
    char line[64];
    for (;;) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        int ready = poll(&in, 1, 1);
        double at = now();
        if (at - last > longest)
            longest = at - last;
        last = at;
        if (ready <= 0)
            continue;
        if (read(0, line, sizeof line) <= 0)
            return;
        printf("%.6f\n", longest);
        fflush(stdout);
        longest = 0;
        last = now();
    }
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)getpid() * 2654435761u + (uint64_t)time(NULL);
    size_t largest = argc > 3 ? strtoull(argv[3], NULL, 10) : 400;
    state = seed | 1;
    held = calloc(count, sizeof *held);
    if (held == NULL || count < 2 || largest < 16)
        return 1;
    fill(count, largest);
    free_half(count);
    printf("{\"pid\": %d, \"chunks\": %zu, \"seed\": %llu}\n", getpid(), count, (unsigned long long)seed);
    fflush(stdout);
    beat();
    _exit(0);
}
