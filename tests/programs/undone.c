/* undone [KIND]
 *
 * Functions that others call in it, and that do not end in time; the threads sleep, and the second one checks that its
 * sleep lasts as long as it was asked for. KIND: it sleeps in "nanosleep" (so it does without), "poll" or "futex".
 */
#include "target.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>

volatile uint64_t word, slept, cut_short;

void spin(void)
{
    word = 1;
    for (;;)
        ;
}

void spin_in_calls(void)
{
    word = 2;
    for (;;)
        syscall(SYS_getppid);
}

void sleep_long(void)
{
    struct timespec time = {60, 0};
    word = 3;
    nanosleep(&time, NULL);
}

void sleep_a_while(void)
{
    struct timespec time = {1, 500000000};
    word = 4;
    nanosleep(&time, NULL);
    word = 5;
}

void fail(void)
{
    word = 6;
    *(volatile char *)8 = 0;
}

static int sleep_once(char kind)
{
    static sem_t semaphore;
    struct timespec time = {0, 50000000}, end;
    if (kind == 'p')
        return poll(NULL, 0, 50);
    if (kind == 'n')
        return nanosleep(&time, NULL);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 50000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return sem_timedwait(&semaphore, &end) != -1 || errno != ETIMEDOUT;
}

static void *sleeping(void *kind)
{
    for (;; slept++)
        cut_short += sleep_once(*(char *)kind) != 0;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleeping, argc > 1 ? argv[1] : "nanosleep"))
        return 2;
    for (;;)
        pause();
}
