/* twins COUNT BYTES [shared]: so many processes beside this one, each with BYTES of its own that it has written to, equal
   in number: forks, or, with a third word, processes in one address space with this one (clone(2), CLONE_VM). Their ids
   are said on standard output once they have written. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static char *memory;
static size_t size;
static int pipes[2];

static int live(void *number)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(memory, (int)(size_t)number, size);
    if (write(pipes[1], "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

int main(int count, char **words)
{
    if (count < 3 || pipe(pipes))
        return 1;
    int twins = atoi(words[1]);
    size = strtoul(words[2], NULL, 10);
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (int number = 1; number <= twins; number++) {
        enum { STACK = 64 << 10 };
        char *stack = malloc(STACK), byte;
        int flags = SIGCHLD | (count > 3 ? CLONE_VM : 0);
        int pid = stack ? clone(live, stack + STACK, flags, (void *)(size_t)number) : -1;
        if (pid < 0 || read(pipes[0], &byte, 1) != 1)
            return 1;
        printf("%d ", pid);
    }
    printf("\n");
    fflush(stdout);
    for (;;)
        pause();
}
