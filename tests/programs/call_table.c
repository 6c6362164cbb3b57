/* Calls of the allocator, each of them in a table in a file that is mapped: what was called, and what came of it.

   call_table THREADS CALLS FORKS SEED FILE [alarm]

   Each thread, and the first thread of each forked child, has a row of CALLS + ROOM entries: what a call returned is
   written once it has returned, a free before it is made. With "alarm" a handler of signals calls malloc and free in
   the middle of other calls, which takes an allocator that bears that. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

enum { MALLOC = 1, CALLOC, REALLOC, MEMALIGN, FREE };
enum { LIVE = 256, ROOM = 4096 };

struct entry { uint64_t what, size, old, result; };
struct row { uint64_t tid, pid, count; struct entry entries[]; };

static char *table;
static size_t row_bytes;
static long calls;
static unsigned seed;

static struct row *row_of(long number) { return (struct row *)(table + number * row_bytes); }

static uint32_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void note(struct row *row, uint64_t what, uint64_t size, uint64_t old, void *result) {
    struct entry *entry = &row->entries[row->count];
    *entry = (struct entry){what, size, old, (uint64_t)result};
    __asm__ volatile("" ::: "memory");
    row->count += 1;
}

static size_t a_size(uint64_t *state) {
    uint32_t kind = next(state) % 100;
    if (kind < 1) return next(state) % 400000;
    if (kind < 10) return next(state) % 9000;
    return next(state) % 600;
}

static void work(struct row *row, uint64_t state) {
    void *live[LIVE] = {0};
    row->pid = getpid();
    row->tid = gettid();
    for (long number = 0; number < calls; number++) {
        void **place = &live[next(&state) % LIVE];
        size_t size = a_size(&state), alignment = (size_t)16 << next(&state) % 5;
        void *old = *place;
        volatile uint64_t before = (uint64_t)old;
        uint32_t what = next(&state) % 10;
        if (what < 2) {
            *place = realloc(old, size + 1);
            note(row, REALLOC, size + 1, before, *place);
            continue;
        }
        note(row, FREE, 0, 0, old);
        free(old);
        if (what < 7) {
            *place = malloc(size);
            note(row, MALLOC, size, 0, *place);
        } else if (what < 9) {
            *place = calloc(3, size);
            note(row, CALLOC, 3 * size, 0, *place);
        } else {
            *place = memalign(alignment, size);
            note(row, MEMALIGN, size, alignment, *place);
        }
    }
    for (int place = 0; place < LIVE; place++) {
        note(row, FREE, 0, 0, live[place]);
        free(live[place]);
    }
}

static void *thread(void *number) {
    work(row_of((long)number), seed + (long)number);
    return NULL;
}

static struct row *of_handler;

static void handle(int number) {
    (void)number;
    if (of_handler->count + 2 > (uint64_t)calls) return;
    void *block = malloc(77);
    note(of_handler, MALLOC, 77, 0, block);
    note(of_handler, FREE, 0, 0, block);
    free(block);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    long threads = atol(argv[1]), forks = atol(argv[3]);
    calls = atol(argv[2]);
    seed = atol(argv[4]);
    int file = open(argv[5], O_RDWR | O_CREAT, 0600);
    row_bytes = sizeof(struct row) + (3 * calls + ROOM) * sizeof(struct entry);
    size_t size = (threads + forks + 2) * row_bytes;
    if (ftruncate(file, size) != 0) return 3;
    table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (argc > 6) {
        of_handler = row_of(threads + forks + 1);
        of_handler->pid = getpid();
        of_handler->tid = gettid();
        struct itimerval often = {{0, 200}, {0, 200}};
        signal(SIGALRM, handle);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    pthread_t *all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long number = 1; number < threads; number++) pthread_create(&all[number], NULL, thread, (void *)number);
    for (long number = 0; number < forks; number++) {
        if (fork() == 0) {
            work(row_of(threads + number), seed + 1000 + number);
            _exit(0);
        }
    }
    work(row_of(0), seed);
    for (long number = 1; number < threads; number++) pthread_join(all[number], NULL);
    while (wait(NULL) > 0) {}
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    return 0;
}
