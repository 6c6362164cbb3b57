/* undone
 *
 * Functions that others call in it, and that do not end in time; the threads sleep, and the second one checks that its
 * sleep lasts as long as it was asked for.
 */
#include "target.h"

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

static void *sleeping(void *unused)
{
    struct timespec time = {0, 50000000};
    for (;; slept++)
        cut_short += nanosleep(&time, NULL) != 0;
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleeping, NULL))
        return 2;
    for (;;)
        pause();
}
