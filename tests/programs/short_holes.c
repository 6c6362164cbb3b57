/* A program that notes by itself which of its calls raise the break, and says so when it ends, a line each: the call's
   number from 1, and the bytes. The first ones leave a hole, and ask for more than that.

   short_holes HOLE MORE SEED CALLS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLOTS = 300, MOST = 20000 };

static long call, count, calls[MOST], bytes[MOST];
static char *before;
static void *slots[SLOTS];
static uint64_t state;

static uint32_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void *noted(void *block) {
    char *now = sbrk(0);
    call += 1;
    if (now > before && count < MOST) {
        calls[count] = call;
        bytes[count++] = now - before;
    }
    before = now;
    return block;
}

static void release(void *block) {
    free(block);
    noted(NULL);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    long hole = atol(argv[1]), more = atol(argv[2]), wanted = atol(argv[4]);
    state = atol(argv[3]);
    before = sbrk(0);
    void *first = noted(malloc(hole)), *pin = noted(malloc(16));
    release(first);
    void *second = noted(malloc(hole + more));
    if (!pin || !second) return 3;
    while (call < wanted) {
        void **slot = &slots[next() % SLOTS];
        size_t size = next() % (next() % 8 ? 2000 : 100000);
        if (*slot && next() % 3) {
            release(*slot);
            *slot = NULL;
        } else {
            *slot = noted(realloc(*slot, size + 1));
        }
    }
    for (long number = 0; number < count; number++) {
        char line[64];
        int length = snprintf(line, sizeof line, "%ld %ld\n", calls[number], bytes[number]);
        if (write(1, line, length) != length) return 4;
    }
    return 0;
}
