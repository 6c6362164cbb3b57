/* A program that is set-uid root takes all of root's user and group ids, groups and capabilities, as su does, and
 * waits. */
#define _GNU_SOURCE
#include <grp.h>
#include <unistd.h>

int main(void)
{
    if (setgroups(0, 0) || setresgid(0, 0, 0) || setresuid(0, 0, 0))
        return 1;
    for (;;)
        pause();
}
