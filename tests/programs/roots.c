/* roots SEED: hangs blocks of sizes that occur once on each kind of root, and prints "NAME ADDRESS SIZE" of each. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct table { void *unused[5]; void *first; };

void *whole;
struct table table;
static void *volatile hidden[40];
__thread void *volatile own;
static pthread_barrier_t there;
static size_t next_size = 20000;

static void *made(const char *name) {
    next_size += 512;
    void *block = calloc(1, next_size);
    fprintf(stderr, "%s %#lx %zu\n", name, (unsigned long)block, malloc_usable_size(block) + 8);
    return block;
}

__attribute__((noinline)) static void waits_here(void) {
    void *volatile local[4] = {made("local")};
    own = made("own");
    pthread_barrier_wait(&there);
    pause();
    free(local[0]);
}

static void *work(void *unused) {
    waits_here();
    return unused;
}

/* What pointed to a block is overwritten. */
__attribute__((noinline)) static void wipe(void) {
    volatile char stack[16384];
    for (size_t place = 0; place < sizeof stack; place++) stack[place] = 0;
}

__attribute__((noinline)) static void plant(unsigned seed) {
    whole = made("whole");
    table.first = made("table");
    hidden[seed % 40] = made("hidden");
    /* A chain, of which the second leads to the third from far inside, and that to the middle of the fourth. */
    char *second = made("second"), *third = made("third"), *fourth = made("fourth");
    *(void **)whole = second;
    *(void **)(second + 4096 + seed % 100 * 8) = third;
    *(void **)(third + 16) = fourth + 200;
    void **mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapped[seed % 1000] = made("mapped");
    char *head = made("lost"), *tail = made("lost tail");
    *(void **)head = tail;
}

int main(int argc, char **argv) {
    unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    setvbuf(stderr, NULL, _IONBF, 0);
    pthread_barrier_init(&there, NULL, 2);
    plant(seed);
    wipe();
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&there);
    pause();
    return 0;
}
