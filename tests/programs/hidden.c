// Blocks that are held by words which are no pointers in memory at whole places: hidden KIND COUNT FILE, of `shared` and
// `private` (the mapping of a file), `packed` and `static` (packed structs), `epoll` and `timer` (the kernel), and `none`.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BYTES 40000
#define MOST 1000

struct __attribute__((packed)) record {
    unsigned char tag;
    void *data;
    unsigned short more;
};

static struct record records[MOST];
static struct record *table = records;

static int give_to_epoll(int epoll, void *block) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = block};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, eventfd(0, 0), &event);
}

static int give_to_timer(void *block) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_ptr = block};
    return timer_create(CLOCK_MONOTONIC, &event, &timer);
}

int main(int count, char **arguments) {
    if (count < 4) return 1;
    const char *kind = arguments[1];
    int left = atoi(arguments[2]), epoll = epoll_create1(0), failed = 0;
    void *volatile *mapped = NULL;
    if (strcmp(kind, "shared") == 0 || strcmp(kind, "private") == 0) {
        int file = open(arguments[3], O_RDWR | O_CREAT, 0600);
        if (ftruncate(file, MOST * sizeof(void *))) return 1;
        int flags = kind[0] == 's' ? MAP_SHARED : MAP_PRIVATE;
        mapped = mmap(NULL, MOST * sizeof(void *), PROT_READ | PROT_WRITE, flags, file, 0);
    }
    if (strcmp(kind, "packed") == 0) table = malloc(sizeof records);
    for (int place = 0; place < left && place < MOST; place++) {
        char *block = malloc(BYTES);
        memset(block, place, BYTES);
        if (mapped != NULL) mapped[place] = block;
        if (strcmp(kind, "packed") == 0 || strcmp(kind, "static") == 0) table[place].data = block;
        if (strcmp(kind, "epoll") == 0) failed |= give_to_epoll(epoll, block);
        if (strcmp(kind, "timer") == 0) failed |= give_to_timer(block);
    }
    char byte;
    return failed || read(0, &byte, 1) < 0;
}
