/* Threads allocate and free blocks, one of them from a freed thread cache; then the program writes malloc_stats() to
 * standard error and each block that it holds, as "address size", to standard output, and stops itself. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define SLOTS 600

static void *held[THREADS + 1][SLOTS];
static size_t sizes[THREADS + 1][SLOTS];
static pthread_barrier_t ready;

static size_t size_of(uint64_t drawn)
{
    unsigned kind = drawn % 100;
    drawn >>= 20;
    return kind < 60 ? drawn % 200 : kind < 90 ? drawn % 3000 : kind < 99 ? drawn % 20000 : drawn % 200000;
}

static void work(int me)
{
    uint64_t state = 77 + 1000 * me;
    for (int round = 0; round < 20000; round++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        unsigned slot = (state >> 33) % SLOTS;
        free(held[me][slot]);
        held[me][slot] = NULL;
        if ((state >> 50) % 3 == 0)
            continue;
        sizes[me][slot] = size_of(state >> 8);
        held[me][slot] = malloc(sizes[me][slot]);
        memset(held[me][slot], 'A' + me, sizes[me][slot]);
    }
}

static void *run(void *number)
{
    work((int)(intptr_t)number);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&ready);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    static char out[1 << 16];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    for (intptr_t number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, run, (void *)number);
    work(THREADS);
    pthread_barrier_wait(&ready);
    malloc_stats();
    for (int me = 0; me <= THREADS; me++)
        for (int slot = 0; slot < SLOTS; slot++)
            if (held[me][slot] != NULL)
                printf("%#lx %zu\n", (unsigned long)held[me][slot], sizes[me][slot]);
    fflush(stdout);
    raise(SIGSTOP);
    pause();
    return 0;
}
