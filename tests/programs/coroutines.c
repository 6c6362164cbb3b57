/* coroutines SEED MODE
 *
 * Runs on a stack of its own making, and rests there in pause(2). MODE says where that stack lies: block (malloc's, in
 * the break), chunk (malloc's, in a mapping of its own), mapped (in the middle of a large mapping that is touched all
 * over), guarded (a mapping with a guard page below it), signal (sigaltstack in the middle of a large mapping, below a
 * handler that runs), given (pthread_attr_setstack in the middle of a large mapping), given-block and given-chunk (the
 * same in malloc's memory). Prints where the stack is and how large, and the large mapping if there is one.
 */
#include "target.h"

#include <signal.h>
#include <ucontext.h>

#define REGION ((size_t)48 << 20)

static char *stack, *region;
static size_t size;
static ucontext_t here, there;

static void rest(void)
{
    volatile char used[2048];
    memset((char *)used, 1, sizeof used);
    park();
}

static void in_signal(int number)
{
    (void)number;
    rest();
}

static void *in_thread(void *argument)
{
    rest();
    return argument;
}

static void in_region(uint64_t *random_state)
{
    region = memset(pages(REGION), 1, REGION);
    stack = region + between(random_state, 1000, 8000) * 4096;
}

static void guarded(void)
{
    char *whole = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED || mprotect(whole + 4096, size, PROT_READ | PROT_WRITE) != 0)
        abort();
    stack = memset(whole + 4096, 1, size);
}

static void place(const char *mode, uint64_t *random_state)
{
    size = between(random_state, 8, 24) * 4096;
    if (strstr(mode, "chunk"))
        size += (size_t)1 << 20;
    if (strstr(mode, "block") || strstr(mode, "chunk"))
        stack = aligned_alloc(4096, size);
    else if (strcmp(mode, "guarded") == 0)
        guarded();
    else
        in_region(random_state);
    fprintf(stderr, "stack %zx %zx\nregion %zx %zx\n", (size_t)stack, size, (size_t)region, region ? REGION : 0);
}

static void start_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, size) != 0 || pthread_create(&thread, &attributes, in_thread, NULL) != 0)
        abort();
    park();
}

static void signal_self(void)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    struct sigaction action = {.sa_handler = in_signal, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        abort();
    raise(SIGUSR1);
}

int main(int argc, char **argv)
{
    uint64_t random_state = seeded(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    const char *mode = argc > 2 ? argv[2] : "mapped";
    place(mode, &random_state);
    if (strncmp(mode, "given", 5) == 0)
        start_thread();
    if (strcmp(mode, "signal") == 0)
        signal_self();
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = size;
    there.uc_link = &here;
    makecontext(&there, rest, 0);
    swapcontext(&here, &there);
    return 1;
}
