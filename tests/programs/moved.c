/* Threads that never rest: each makes large blocks larger and smaller by realloc, which moves their mappings, and has
   others mapped and given back meanwhile. Usage: moved THREADS SEED TABLE; TABLE is made once all are at it. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 8 };

static atomic_int at_it;

static unsigned next(unsigned *state)
{
    return *state = *state * 1103515245u + 12345u;
}

static void *work(void *argument)
{
    unsigned state = *(unsigned *)argument;
    void *blocks[BLOCKS] = {0};
    for (long round = 0;; round++) {
        unsigned index = next(&state) >> 16 & (BLOCKS - 1);
        size_t size = 150000 + (next(&state) >> 8) % 2000000;
        if (next(&state) >> 16 & 3) {
            blocks[index] = realloc(blocks[index], size);
        } else {
            free(blocks[index]);
            blocks[index] = malloc(size);
        }
        if (!blocks[index])
            abort();
        if (round == 100)
            at_it++;
    }
}

int main(int argc, char **argv)
{
    int threads = argc == 4 ? atoi(argv[1]) : 0;
    unsigned *seeds = calloc(threads + 1, sizeof *seeds);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        seeds[i] = atoi(argv[2]) + 7919 * i;
        if (pthread_create(&thread, NULL, work, &seeds[i]))
            return 1;
    }
    while (at_it < threads)
        usleep(1000);
    int table = threads ? open(argv[3], O_WRONLY | O_CREAT, 0600) : -1;
    if (table < 0)
        return 1;
    pause();
    return 0;
}
