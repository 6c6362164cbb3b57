/* All at once, for a while: threads that load and unload libraries, ask for what is loaded and allocate meanwhile, fork, and
   live on the smallest stack there is. stack_storm LIBRARY LIBRARY ROUNDS prints "done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;
static char **libraries;

static void *kept(void *block) {
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

static void called(long size) { free(kept(malloc(size))); }

static int each(struct dl_phdr_info *info, size_t size, void *data) {
    (void)data;
    free(kept(malloc(size + info->dlpi_phnum)));
    return 0;
}

static void *load(void *number) {
    while (!stop) {
        void *library = dlopen(libraries[(long)number], RTLD_NOW);
        if (!library) _exit(3);
        void (*call)(void (*)(long), long) = (void (*)(void (*)(long), long))dlsym(library, "pass_on");
        call(called, 500);
        dlclose(library);
    }
    return NULL;
}

static void *work(void *unused) {
    while (!stop) {
        void *block = kept(malloc(2000));
        block = kept(realloc(block, 5000));
        free(block);
        dl_iterate_phdr(each, NULL);
    }
    return unused;
}

static void *fork_off(void *unused) {
    while (!stop) {
        pid_t child = fork();
        if (!child) {
            for (int number = 0; number < 20; number++) called(3000);
            _exit(0);
        }
        if (child > 0) waitpid(child, NULL, 0);
    }
    return unused;
}

static void *small(void *unused) {
    called(3000);
    return unused;
}

int main(int count, char **words) {
    pthread_t threads[4], one;
    pthread_attr_t attributes;
    if (count < 4) return 2;
    libraries = words + 1;
    for (long number = 0; number < 2; number++) pthread_create(&threads[number], NULL, load, (void *)number);
    pthread_create(&threads[2], NULL, work, NULL);
    pthread_create(&threads[3], NULL, fork_off, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    for (int number = 0; number < atoi(words[3]); number++) {
        if (!pthread_create(&one, &attributes, small, NULL)) pthread_join(one, NULL);
        usleep(10000);
    }
    stop = 1;
    for (int number = 0; number < 4; number++) pthread_join(threads[number], NULL);
    puts("done");
    return 0;
}
