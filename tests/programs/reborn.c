/* Its child has a process id that another process had: reborn FILE PID MEBIBYTES. The child touches so much memory, counts
 * in the first word of FILE, and in the second the signals that reach it. Ends with standard input; status 3 where the
 * kernel does not let us choose an id (clone3(2), set_tid). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

struct arguments {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static volatile uint64_t *words;
static void *volatile kept;

static void count_signal(int number)
{
    (void)number;
    words[1]++;
}

static void live(size_t size)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction action = {.sa_handler = count_signal};
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &action, NULL);
    kept = memset(malloc(size), 1, size);
    for (;;) {
        words[0]++;
        usleep(1000);
    }
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    int file = open(arguments[1], O_RDWR);
    pid_t wanted = atoi(arguments[2]);
    if (file < 0 || ftruncate(file, 512) < 0)
        return 2;
    words = mmap(NULL, 512, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (words == MAP_FAILED)
        return 2;
    struct arguments clone = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
    for (int attempt = 0; attempt < 10000; attempt++) {
        long child = syscall(SYS_clone3, &clone, sizeof clone);
        if (child == 0)
            live((size_t)atoi(arguments[3]) << 20);
        if (child > 0) {
            char byte;
            while (read(0, &byte, 1) > 0)
                continue;
            kill((pid_t)child, SIGKILL);
            waitpid((pid_t)child, NULL, 0);
            return 0;
        }
        if (errno != EEXIST)
            return 3;
        usleep(1000);
    }
    return 4;
}
