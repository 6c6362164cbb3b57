// Threads that nest functions at random, some through callbacks of libc's, and rest there: nested SEED DEPTH THREADS.
// After a line on standard input the main thread loads LIBRARY, if there is one, and rests in its wait_inside().
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static __thread unsigned state;
static __thread int left;
static pthread_barrier_t ready;
static int main_thread_reads;

void rest(void);
KEPT void next_one(void);

KEPT static void plain(void) { next_one(); __asm__ volatile(""); }
KEPT static void with_room(void) { char room[5000]; next_one(); __asm__ volatile("" : : "r"(room)); }
KEPT static int compare(const void *one, const void *other) {
    (void)one; (void)other;
    if (left >= 0) next_one();
    return 0;
}
KEPT static void sorted(void) { int values[2] = {2, 1}; qsort(values, 2, sizeof *values, compare); __asm__ volatile(""); }
KEPT static void searched(void) { int value = 1; (void)!bsearch(&value, &value, 1, sizeof value, compare); __asm__ volatile(""); }
KEPT static void recursive(int times) { if (times) recursive(times - 1); else next_one(); __asm__ volatile(""); }

KEPT void next_one(void) {
    state = state * 1103515245 + 12345;
    if (left-- <= 0) { left = -1; rest(); return; }
    switch (state >> 16 & 7) {
    case 0: case 1: plain(); break;
    case 2: with_room(); break;
    case 3: sorted(); break;
    case 4: searched(); break;
    default: recursive(state >> 20 & 3);
    }
    __asm__ volatile("");
}

KEPT void rest(void) {
    char line[2];
    int reads = main_thread_reads;
    main_thread_reads = 0;
    pthread_barrier_wait(&ready);
    if (!reads) for (;;) pause();
    if (read(0, line, 1) < 0) _exit(1);
}

static void *thread(void *seed) {
    state = (unsigned)(size_t)seed;
    left = state % 20;
    next_one();
    return NULL;
}

int main(int argc, char **argv) {
    unsigned seed = (unsigned)atoi(argv[1]);
    int threads = atoi(argv[3]);
    pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
    for (int index = 0; index < threads; index++) {
        pthread_t made;
        if (pthread_create(&made, NULL, thread, (void *)(size_t)(seed + (unsigned)index))) return 1;
    }
    usleep(100000);
    main_thread_reads = 1;
    state = seed, left = atoi(argv[2]);
    next_one();
    if (argc > 4) {
        void *library = dlopen(argv[4], RTLD_NOW);
        if (!library) { fputs(dlerror(), stderr); return 1; }
        ((void (*)(void))dlsym(library, "wait_inside"))();
    }
    return 0;
}
