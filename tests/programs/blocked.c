/* Threads that wait in each kind of system call that a tracer's stop may end, that are sent signals, that allocate and
   check what they wrote. Everything is counted in a file (argv[1]) of 64-bit words, mapped shared; argv[2]: MiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EPOLL, RECV, SIGTIMEDWAIT, SEMTIMEDOP, SEMOP, READ_TIMED, NANOSLEEP, POLL, KINDS };
enum { EINTRS = 0, TURNS = 16, SENT = 32, RECEIVED, CHILDREN, STRANGE, WRONG, CHECKED, EARLY, OTHER };

static volatile uint64_t *words;
static int semaphores, sockets[2];
static pthread_t receivers[2];

static void count(int word) { __atomic_fetch_add(&words[word], 1, __ATOMIC_SEQ_CST); }

static void on_signal(int number) { count(number == SIGCHLD ? CHILDREN : RECEIVED); }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static long wait_once(int kind, int epoll) {
    struct epoll_event event;
    struct timespec limit = {0, 100000000};
    struct sembuf take = {kind == SEMOP ? 1 : 0, -1, 0};
    struct pollfd nothing = {sockets[1], POLLIN, 0};
    sigset_t set;
    char byte;
    switch (kind) {
    case EPOLL: return epoll_wait(epoll, &event, 1, 100);
    case RECV: return recv(sockets[0], &byte, 1, 0);
    case READ_TIMED: return read(sockets[0], &byte, 1);
    case SIGTIMEDWAIT:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        return sigtimedwait(&set, NULL, &limit);
    case SEMTIMEDOP: return semtimedop(semaphores, &take, 1, &limit);
    case SEMOP: return semop(semaphores, &take, 1);
    case POLL: return poll(&nothing, 1, 100);
    default: return nanosleep(&limit, NULL);
    }
}

static void *wait_forever(void *argument) {
    int kind = (int)(intptr_t)argument, epoll = epoll_create1(0);
    for (;;) {
        double began = now();
        long answer = wait_once(kind, epoll);
        if (answer < 0 && errno == EINTR)
            count(EINTRS + kind);
        else if (answer < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            count(OTHER);
        else if (now() - began < 0.099)
            count(EARLY);
        count(TURNS + kind);
    }
    return NULL;
}

/* Takes signals while it computes and while it makes short system calls. */
static void *receive(void *argument) {
    (void)argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (volatile int turn = 0;; turn++)
        if (turn % 1000 == 0)
            usleep(50);
    return NULL;
}

static void *send_signals(void *argument) {
    (void)argument;
    for (unsigned turn = 0;; turn++) {
        if (words[SENT] - words[RECEIVED] < 16) {
            count(SENT);
            if (pthread_sigqueue(receivers[turn % 2], SIGRTMIN, (union sigval){0}))
                count(OTHER);
        }
        usleep(100);
    }
    return NULL;
}

static void *allocate(void *argument) {
    (void)argument;
    static __thread unsigned char *blocks[64];
    static __thread size_t sizes[64];
    unsigned state = 1;
    for (;;) {
        state = state * 1103515245 + 12345;
        unsigned slot = state >> 16 & 63;
        for (size_t at = 0; at < sizes[slot]; at++)
            if (blocks[slot][at] != slot)
                count(WRONG);
        free(blocks[slot]);
        sizes[slot] = 16 + (state >> 8 & 4095);
        blocks[slot] = malloc(sizes[slot]);
        memset(blocks[slot], (int)slot, sizes[slot]);
        count(CHECKED);
        if (words[CHECKED] % 256 == 0)
            usleep(200);
    }
    return NULL;
}

static void start(pthread_t *thread, void *(*body)(void *), intptr_t argument) {
    pthread_t unused;
    if (pthread_create(thread ? thread : &unused, NULL, body, (void *)argument))
        abort();
}

int main(int argc, char **argv) {
    int file = open(argc > 1 ? argv[1] : "", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096))
        return 2;
    words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 1) << 20;
    char *memory = malloc(bytes);
    memset(memory, 7, bytes);
    struct timeval limit = {0, 100000};
    semaphores = semget(IPC_PRIVATE, 2, 0600);
    if (semaphores < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
        return 3;
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    for (int kind = 0; kind < KINDS; kind++)
        start(NULL, wait_forever, kind);
    start(&receivers[0], receive, 0);
    start(&receivers[1], receive, 1);
    start(NULL, send_signals, 0);
    start(NULL, allocate, 0);
    start(NULL, allocate, 1);
    /* Its semaphores go when it is told to end: they would outlive it. */
    struct pollfd told = {0, POLLIN | POLLHUP, 0};
    for (;;) {
        int status;
        if (waitpid(-1, &status, WNOHANG) != -1 || errno != ECHILD)
            count(STRANGE);
        if (poll(&told, 1, 1) > 0)
            break;
    }
    semctl(semaphores, 0, IPC_RMID);
    return 0;
}
