/* filtered_thread: a thread with a seccomp filter of its own, which allows everything; the first thread has none. */
#include "target.h"
#include <pthread.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static pthread_barrier_t filtered;

static void *work(void *nothing)
{
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
    pthread_barrier_wait(&filtered);
    pause();
    return nothing;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&filtered, NULL, 2);
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&filtered);
    park();
}
