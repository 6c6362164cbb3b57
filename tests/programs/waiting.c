/* Waits in recv(2) with a time limit, which ends with EINTR for each signal that is not ignored. Prints "ready"; at the
   end of standard input says how often that happened, as its exit status. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int pair[2], interrupted;

static void *wait_for_it(void *unused) {
    char byte;
    for (;;) {
        ssize_t got = recv(pair[0], &byte, 1, 0);
        if (got > 0) return unused;
        if (got < 0 && errno == EINTR) interrupted++;
    }
}

int main(void) {
    struct timeval limit = {3600, 0};
    pthread_t thread;
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 100;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    pthread_create(&thread, NULL, wait_for_it, NULL);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) free(malloc(1 << 20));
    if (write(pair[1], "x", 1) != 1) return 101;
    pthread_join(thread, NULL);
    return interrupted < 99 ? interrupted : 99;
}
