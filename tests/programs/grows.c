/* Grows by a schedule that it prints: on a line of input it maps, unmaps, resizes and moves its break a random but known
   number of times, in several threads, and says what it did. Some of its threads hold back all signals, and it counts
   those that reach its handlers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define THREADS 4

static volatile sig_atomic_t handled;
static unsigned long maps, map_bytes, unmaps, unmap_bytes, resizes, resize_bytes, advices, failures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int rounds;

static void handle(int number) { (void)number; handled++; }

static void count(unsigned long *calls, unsigned long *bytes, unsigned long size) {
    pthread_mutex_lock(&lock);
    *calls += 1;
    *bytes += size;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static char *map(unsigned long size) {
    char *found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) abort();
    count(&maps, &map_bytes, size);
    return found;
}

__attribute__((noinline)) static void step(unsigned *seed) {
    unsigned long size = PAGE * (1 + rand_r(seed) % 64), larger = size + PAGE * (1 + rand_r(seed) % 64);
    char *found = map(size);
    memset(found, 1, size);
    found = mremap(found, size, larger, MREMAP_MAYMOVE);
    if (found == MAP_FAILED) abort();
    count(&resizes, &resize_bytes, larger - size);
    if (madvise(found, larger, MADV_DONTNEED)) abort();
    unsigned long none = 0;
    count(&advices, &none, 0);
    if (rand_r(seed) % 2) {
        munmap(found, larger);
        count(&unmaps, &unmap_bytes, larger);
    }
    if (mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) count(&failures, &none, 0);
}

static void *work(void *number) {
    unsigned seed = (unsigned)(unsigned long)number;
    if (seed % 2) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, 0);
    }
    for (int i = 0; i < rounds; i++) step(&seed);
    return 0;
}

static void run(unsigned seed) {
    pthread_t threads[THREADS];
    for (unsigned long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)(seed + i));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    unsigned long grown = 0, steps = 0;
    for (unsigned i = 0; i < 8; i++) {
        long size = PAGE * (1 + rand_r(&seed) % 16);
        if (sbrk(size) == (void *)-1) abort();
        grown += size;
        steps++;
    }
    /* A child has a copy of the code, and goes its own way. */
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 20; i++) munmap(mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE);
        _exit(7);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) abort();
    fprintf(stderr, "{\"mmap\": [%lu, %lu], \"munmap\": [%lu, %lu], \"mremap\": [%lu, %lu], \"madvise\": %lu, \"brk\": [%lu, %lu], "
           "\"failed\": %lu, \"handled\": %d}\n",
           maps, map_bytes, unmaps, unmap_bytes, resizes, resize_bytes, advices, steps, grown, failures, (int)handled);
}

int main(int argc, char **argv) {
    unsigned seed = argc > 1 ? strtoul(argv[1], 0, 10) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 50;
    char line[16];
    /* malloc's heap is there before anybody counts. */
    void *volatile block = malloc(1);
    free(block);
    struct sigaction action = {.sa_handler = handle};
    for (int i = 3; i < argc; i++) sigaction(atoi(argv[i]), &action, 0);
    while (read(0, line, sizeof line) > 0) run(seed++);
    return 0;
}
