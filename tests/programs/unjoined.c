/* unjoined COUNT BYTES MODE: COUNT threads write to BYTES of their stacks, one after the other, and end. MODE: 0 nobody
 * joins them; 1 another thread runs meanwhile; 2 they are detached; 3 nobody joins them, and then the program forks.
 */
#include <alloca.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include "target.h"

static size_t bytes;
static _Atomic size_t done;

static void *work(void *nothing)
{
    char *volatile there = alloca(bytes);
    memset(there, 1, bytes);
    done++;
    return nothing;
}

static void *wait_for_ever(void *nothing)
{
    pause();
    return nothing;
}

int main(int argc, char **arguments)
{
    if (argc != 4)
        return 1;
    size_t count = strtoull(arguments[1], NULL, 10);
    int mode = atoi(arguments[3]);
    pthread_t other;
    bytes = strtoull(arguments[2], NULL, 10);
    if (mode == 1)
        pthread_create(&other, NULL, wait_for_ever, NULL);
    for (size_t i = 0; i < count; i++) {
        pthread_create(&other, NULL, work, NULL);
        if (mode == 2)
            pthread_detach(other);
        while (done <= i)
            sched_yield();
    }
    usleep(100000);
    if (mode == 3 && fork() == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    park();
}
