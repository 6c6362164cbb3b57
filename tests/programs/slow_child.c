/* slow_child HOW: after a line on standard input it makes a process that shares its memory, then gets and returns
 * memory. After another line, the other process may end.
 *
 * "late": the other process stops for a tracer only after the kernel has written its id to a page that never arrives.
 * "shares": it stops at once.
 */
#include "target.h"
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static volatile int may_end;

static int wait_for_end(void *nothing)
{
    (void)nothing;
    while (!may_end)
        usleep(1000);
    _exit(0);
}

static void *lost_page(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register place = {.range = {(uintptr_t)page, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    int number = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (number < 0 || ioctl(number, UFFDIO_API, &api) || ioctl(number, UFFDIO_REGISTER, &place))
        return NULL;
    return page;
}

int main(int count, char **words)
{
    if (count != 2)
        return 1;
    int is_late = !strcmp(words[1], "late");
    char *stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), line[8];
    void *page = is_late ? lost_page() : NULL;
    if (is_late && page == NULL) {
        printf("refused\n");
        fflush(stdout);
        return 0;
    }
    printf("%d\n", getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    signal(SIGCHLD, SIG_IGN);
    /* clone() returns at once, although the child does not run yet. */
    int flags = CLONE_VM | SIGCHLD | (is_late ? CLONE_CHILD_SETTID : 0);
    if (clone(wait_for_end, stack + (1 << 16), flags, NULL, NULL, NULL, page) < 0)
        return 1;
    for (int round = 0; round < 50; round++) {
        void *piece = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(piece, 1 << 20);
    }
    printf("made\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    may_end = 1;
    pause();
}
