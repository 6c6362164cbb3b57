/* lost SEED: allocates in every way, frees all but some blocks, and forgets where these are. At its end nothing else is
   allocated: it writes nothing, as stdio would have a buffer. */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4000 };

static void *blocks[COUNT];

static uint32_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void *a_block(uint64_t *state) {
    size_t size = next(state) % (next(state) % 50 ? 900 : 300000) + 1;
    void *block = NULL;
    switch (next(state) % 6) {
    case 0: return calloc(size, 3);
    case 1: return realloc(malloc(size / 3 + 1), size);
    case 2: return realloc(malloc(3 * size), size);
    case 3: return memalign(64, size);
    case 4: return posix_memalign(&block, 256, size) == 0 ? block : NULL;
    default: return malloc(size);
    }
}

/* Pointers that are left behind, in registers and below the stack's end, would keep a block from being lost. */
__attribute__((noinline)) static void work(uint64_t seed) {
    uint64_t state = seed;
    for (int place = 0; place < COUNT; place++) {
        blocks[place] = a_block(&state);
        int other = next(&state) % (place + 1);
        if (next(&state) % 3 == 0) {
            free(blocks[other]);
            blocks[other] = a_block(&state);
        }
    }
    for (int place = 0; place < COUNT; place++)
        if (next(&state) % 8 != 0) free(blocks[place]);
    memset(blocks, 0, sizeof blocks);
}

__attribute__((noinline)) static int wipe(void) {
    volatile char stack[16384];
    for (size_t place = 0; place < sizeof stack; place++) stack[place] = 0;
    return stack[17];
}

int main(int argc, char **argv) {
    work(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    return wipe();
}
