/* dispatched_thread: a thread whose system calls go to a signal handler unless a flag allows them. */
#include "target.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static pthread_barrier_t dispatched;
static volatile char flag; /* 0: allow */

static void *work(void *nothing)
{
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &flag))
        _exit(77);
    pthread_barrier_wait(&dispatched);
    pause();
    return nothing;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&dispatched, NULL, 2);
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&dispatched);
    park();
}
