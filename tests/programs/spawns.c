/* Threads that start threads for a while, one each two milliseconds. On a line of input each of them maps memory a few times,
   and starts one more thread that does so and ends; then it prints how many maps and bytes that were, and waits for the
   next line. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define SPAWNERS 4
#define MAPS 3

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned long maps, bytes;
static int round_number, done, threads;

__attribute__((noinline)) static char *map(unsigned long size) {
    char *found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) abort();
    pthread_mutex_lock(&lock);
    maps++;
    bytes += size;
    pthread_mutex_unlock(&lock);
    return found;
}

static void *map_once(void *number) {
    *map(PAGE * (unsigned long)number) = 1;
    return 0;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (pthread_create(thread, &small, run, argument)) abort();
}

static void *wait_and_map(void *number) {
    int seen = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (seen == round_number) pthread_cond_wait(&changed, &lock);
        seen = round_number;
        pthread_mutex_unlock(&lock);
        for (unsigned long i = 0; i < MAPS; i++) *map(PAGE * (1 + ((unsigned long)number + i) % 7)) = 1;
        pthread_t other;
        start(&other, map_once, (void *)2);
        pthread_join(other, 0);
        pthread_mutex_lock(&lock);
        done++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void *spawn(void *count) {
    for (unsigned long i = 0; i < (unsigned long)count; i++) {
        pthread_t thread;
        start(&thread, wait_and_map, (void *)i);
        usleep(8000);
    }
    return 0;
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], 0, 10) : 100;
    pthread_t spawners[SPAWNERS];
    for (int i = 0; i < SPAWNERS; i++) start(&spawners[i], spawn, (void *)count);
    threads = SPAWNERS * (int)count;
    char line[16];
    while (read(0, line, sizeof line) > 0) {
        for (int i = 0; i < SPAWNERS && !round_number; i++) pthread_join(spawners[i], 0);
        pthread_mutex_lock(&lock);
        maps = bytes = 0;
        done = 0;
        round_number++;
        pthread_cond_broadcast(&changed);
        while (done < threads) pthread_cond_wait(&changed, &lock);
        fprintf(stderr, "{\"threads\": %d, \"mmap\": [%lu, %lu]}\n", threads, maps, bytes);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
