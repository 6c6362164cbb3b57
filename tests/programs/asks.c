/* Asks malloc's functions for sizes, a hundred thousand times on a line of input, in two threads; only `wanted` asks for
   the sizes that the first argument makes. Says how often, and whether each block was as it should be. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 100000

static unsigned long special;
static unsigned long calls[4];
static void *volatile kept;

__attribute__((noinline)) static void wanted(int which) {
    char *block = 0;
    if (which == 0) block = malloc(special);
    if (which == 1) block = calloc(special / 8, 8);
    if (which == 2) block = realloc(malloc(40), special);
    if (which == 3) {
        block = malloc(special);
        kept = block;
        free(block);
        calls[3]++;
        return;
    }
    if (!block || malloc_usable_size(block) < special / 8 * 8) abort();
    memset(block, which, special / 8 * 8);
    kept = block;
    free(block);
    calls[which]++;
}

static void *work(void *argument) {
    unsigned seed = (unsigned)(unsigned long)argument;
    char *blocks[64] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        int at = rand_r(&seed) % 64;
        unsigned long size = 1 + rand_r(&seed) % 4000;
        switch (rand_r(&seed) % 3) {
        case 0: free(blocks[at]); blocks[at] = malloc(size); break;
        case 1: free(blocks[at]); blocks[at] = calloc(size, 1); break;
        default: blocks[at] = realloc(blocks[at], size);
        }
        if (!blocks[at]) abort();
        blocks[at][size - 1] = 1;
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return 0;
}

int main(int argc, char **argv) {
    char line[16];
    special = strtoul(argv[1], 0, 10);
    if (argc < 2) return 1;
    while (read(0, line, sizeof line) > 0) {
        pthread_t thread;
        pthread_create(&thread, 0, work, (void *)special);
        work((void *)(special + 1));
        for (int i = 0; i < 4; i++) wanted(i);
        pthread_join(thread, 0);
        fprintf(stderr, "{\"calls\": [%lu, %lu, %lu, %lu]}\n", calls[0], calls[1], calls[2], calls[3]);
    }
    return 0;
}
