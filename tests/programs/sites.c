/* Functions that allocate known amounts, from several places, in threads, a forked child, a handler, a library that is
   loaded and unloaded, and a program that is executed; and what glibc's backtrace() says at some of these calls.

   sites table THREADS CALLS SEED    allocates and frees at random; prints "site NAME bytes blocks all-bytes all-blocks"
   sites stacks LIBRARY              prints "stack ADDRESS PID PLACE…" of blocks that stay, the return addresses innermost
                                     first: those of the allocating function, its caller, … */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SITES 5
#define KEPT 300
#define MOST 64

static const char *const names[SITES] = {"by_malloc", "by_calloc", "by_realloc", "by_memalign", "by_another"};
static _Atomic long in_use[SITES], blocks[SITES], all[SITES], calls[SITES];

struct block {
    void *address;
    long size;
    int site;
};

static __attribute__((noinline)) void *by_malloc(long size) {
    void *found = malloc(size);
    __asm__ volatile("" : : "r"(found) : "memory");
    return found;
}

static __attribute__((noinline)) void *by_calloc(long size) {
    void *found = calloc(1, size);
    __asm__ volatile("" : : "r"(found) : "memory");
    return found;
}

static __attribute__((noinline)) void *by_realloc(void *old, long size) {
    void *found = realloc(old, size);
    __asm__ volatile("" : : "r"(found) : "memory");
    return found;
}

static __attribute__((noinline)) void *by_memalign(long size) {
    void *found = memalign(64, size);
    __asm__ volatile("" : : "r"(found) : "memory");
    return found;
}

static __attribute__((noinline)) void *by_another(long size) {
    void *found = malloc(size);
    __asm__ volatile("" : : "r"(found) : "memory");
    return found;
}

static void forget(const struct block *block) {
    in_use[block->site] -= block->size;
    blocks[block->site] -= 1;
}

struct work {
    unsigned long state;
    long calls;
};

static unsigned long next(struct work *work) {
    work->state = work->state * 6364136223846793005ul + 1442695040888963407ul;
    return work->state >> 33;
}

static void *churn(void *argument) {
    struct work *work = argument;
    struct block kept[KEPT] = {0};
    for (long number = 0; number < work->calls; number++) {
        struct block *block = &kept[next(work) % KEPT];
        int site = next(work) % SITES;
        long size = 1 + next(work) % (next(work) % 50 ? 3000 : 300000);
        if (block->address && site == 2) {
            forget(block);
            block->address = by_realloc(block->address, size);
        } else {
            if (block->address) {
                forget(block);
                free(block->address);
            }
            block->address = site == 0 ? by_malloc(size) : site == 1 ? by_calloc(size) : site == 2 ? by_realloc(NULL, size)
                             : site == 3 ? by_memalign(size) : by_another(size);
        }
        block->size = size;
        block->site = site;
        in_use[site] += size;
        blocks[site] += 1;
        all[site] += size;
        calls[site] += 1;
    }
    return NULL;
}

static int table(int threads, long count, unsigned long seed) {
    pthread_t all_threads[64];
    struct work work[65];
    for (int number = 0; number <= threads; number++) work[number] = (struct work){seed + 1000003ul * number, count};
    for (int number = 0; number < threads; number++) pthread_create(&all_threads[number], NULL, churn, &work[number + 1]);
    churn(&work[0]);
    for (int number = 0; number < threads; number++) pthread_join(all_threads[number], NULL);
    for (int site = 0; site < SITES; site++)
        printf("site %s %ld %ld %ld %ld\n", names[site], in_use[site], blocks[site], all[site], calls[site]);
    return 0;
}

/* The block stays. The first place is one behind the call in here, which is not the same for malloc and for backtrace. */
static __attribute__((noinline)) void told(long size) {
    void *places[MOST];
    char text[MOST * 24];
    void *found = malloc(size);
    int count = backtrace(places, MOST), used = 0;
    for (int number = 1; number < count; number++)
        used += snprintf(text + used, sizeof text - used, " %lx", (unsigned long)places[number]);
    printf("stack %lx %d%s\n", (unsigned long)found, getpid(), text);
    fflush(stdout);
}

static __attribute__((noinline)) void deeper(int depth) {
    if (depth) deeper(depth - 1);
    else told(3001);
    __asm__ volatile("" : : : "memory");
}

static void on_signal(int number) {
    told(3002 + number);
    __asm__ volatile("" : : : "memory");
}

static int compare(const void *first, const void *second) {
    static int once;
    if (!once++) told(3003);
    return *(const int *)first - *(const int *)second;
}

static void *in_thread(void *argument) {
    told(3004);
    deeper(5);
    return argument;
}

static void through_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) _exit(3);
    void (*call)(void (*)(long), long) = (void (*)(void (*)(long), long))dlsym(library, "pass_on");
    call(told, 3005);
    dlclose(library);
}

static int stacks(const char *library, const char *second, const char *self) {
    static char stack[64 << 10];
    int numbers[] = {3, 2, 1};
    pthread_t thread;
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction plain = {.sa_handler = on_signal}, apart = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    void *warm[4];
    /* Loads what unwinds, and allocates for it. */
    backtrace(warm, 4);
    told(3000);
    deeper(20);
    qsort(numbers, 3, sizeof *numbers, compare);
    sigaction(SIGUSR1, &plain, NULL);
    raise(SIGUSR1);
    sigaltstack(&other, NULL);
    sigaction(SIGUSR2, &apart, NULL);
    raise(SIGUSR2);
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    through_library(library);
    through_library(second);
    through_library(library);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        deeper(3);
        execl(self, self, "stacks-again", NULL);
        _exit(4);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(int count, char **words) {
    if (count > 4 && !strcmp(words[1], "table")) return table(atoi(words[2]), atol(words[3]), strtoul(words[4], NULL, 10));
    if (count > 3 && !strcmp(words[1], "stacks")) return stacks(words[2], words[3], words[0]);
    void *warm[4];
    backtrace(warm, 4);
    deeper(4);
    return 0;
}
