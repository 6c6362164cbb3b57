/* Each byte of standard input begins a vfork or ends it: in between one thread sleeps uninterruptibly (state D). The other
   threads map and unmap memory, and count that in a file (argv[1]) of 64-bit words, mapped shared. At the end of standard
   input it ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t *words;

static void *count(void *argument) {
    for (;; usleep(500)) {
        void *mapped = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED || munmap(mapped, 65536))
            abort();
        words[(intptr_t)argument]++;
    }
    return NULL;
}

static void *lend(void *argument) {
    char byte;
    while (read(0, &byte, 1) > 0)
        if (vfork() == 0) {
            read(0, &byte, 1);
            _exit(0);
        }
    return argument;
}

int main(int argc, char **argv) {
    int file = open(argc > 1 ? argv[1] : "", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096))
        return 2;
    words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_t thread, lender;
    for (intptr_t index = 0; index < 3; index++)
        if (pthread_create(&thread, NULL, count, (void *)index))
            abort();
    if (pthread_create(&lender, NULL, lend, NULL))
        abort();
    pthread_join(lender, NULL);
    return 0;
}
