/* outside MODE MIB FILE
 *
 * MIB mebibytes that malloc did not hand out, all written to; each line of standard input lets it go on.
 * "static": a variable of the program; "file": a private mapping of FILE; "shared": a shared one; "deep": the first
 * thread's stack, by recursion; "returned": another thread's, by calls that have returned; "break": memory of sbrk();
 * "storage": a thread-local variable of as many threads as it takes; "threads": blocks of malloc that the stacks of 16
 * threads hold; "register": a block that a function has in a register while the C library waits for a line; "locked":
 * blocks of malloc that were freed while all memory is locked, of which munlockall() and malloc_trim() give some back
 * on the first line; "lazy": a mapping, given back by MADV_FREE.
 */
#include "target.h"
#include <sys/resource.h>

#define MIB (1UL << 20)
#define COPY (MIB / 4)
#define MANY 16
#define FRAME 4096

static char table[64 * MIB];
static __thread char scratch[COPY];
static pthread_barrier_t barrier;
static size_t size;

static void wait_for_line(void)
{
    char line[64];
    if (read(0, line, sizeof line) <= 0)
        park();
}

static int waits = 1;

static int descend(size_t left)
{
    volatile char frame[FRAME];
    memset((char *)frame, (int)left, FRAME);
    if (left <= FRAME) {
        if (waits)
            wait_for_line();
        return frame[0];
    }
    return descend(left - FRAME) + frame[left % FRAME];
}

static void *use_storage(void *unused)
{
    memset(scratch, 1, sizeof scratch);
    pthread_barrier_wait(&barrier);
    park();
    return unused;
}

static void *keep_blocks(void *unused)
{
    char *volatile kept[256];
    size_t each = size / MANY / 256;
    for (size_t i = 0; i < 256; i++) {
        kept[i] = malloc(each);
        memset(kept[i], 1, each);
    }
    pthread_barrier_wait(&barrier);
    park();
    return kept[0] == NULL ? unused : NULL;
}

static void *return_from(void *unused)
{
    waits = 0;
    int last = descend(size);
    pthread_barrier_wait(&barrier);
    park();
    return last == 1 ? unused : NULL;
}

static void start(void *(*body)(void *), unsigned count)
{
    pthread_t thread;
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 2 * size);
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&thread, body == return_from ? &large : NULL, body, NULL) != 0)
            abort();
    pthread_barrier_wait(&barrier);
}

static void free_locked(void)
{
    size_t count = size / 20000;
    char **blocks = pages(count * sizeof *blocks);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        exit(3);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(20000);
        memset(blocks[i], 1, 20000);
        if (malloc(50) == NULL)
            abort();
    }
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    wait_for_line();
    munlockall();
    malloc_trim(0);
}

static __attribute__((noinline)) int keep_in_register(void)
{
    char *kept = malloc(size);
    memset(kept, 1, size);
    int line = getchar();
    return kept[line & 63];
}

/* Saves all registers that its callers may have something in. */
static __attribute__((noinline)) int wait_with_registers(void)
{
#ifdef __x86_64__
    __asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15");
#endif
    int line = getchar();
#ifdef __x86_64__
    __asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15");
#endif
    return line;
}

static __attribute__((noinline)) int keep_over_call(void)
{
    char *kept = malloc(size);
    memset(kept, 1, size);
    return kept[wait_with_registers() & 63];
}

static __attribute__((noinline)) int keep_over_read(void)
{
    char *kept = malloc(size), line = 0;
    memset(kept, 1, size);
    return read(STDIN_FILENO, &line, 1) == 1 ? kept[line & 63] : 0;
}

static void map_file(const char *path, int kind)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        abort();
    char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, kind, file, 0);
    if (all == MAP_FAILED)
        abort();
    memset(all, 1, size);
}

static void give_back_lazily(void)
{
    char *all = pages(size);
    memset(all, 1, size);
    madvise(all, size, MADV_FREE);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *mode = argv[1];
    size = strtoull(argv[2], NULL, 10) * MIB;
    void *block = malloc(100);
    if (block == NULL || size > sizeof table)
        return 2;
    if (strcmp(mode, "static") == 0)
        memset(table, 1, size);
    else if (strcmp(mode, "file") == 0)
        map_file(argv[3], MAP_PRIVATE);
    else if (strcmp(mode, "lazy") == 0)
        give_back_lazily();
    else if (strcmp(mode, "shared") == 0)
        map_file(argv[3], MAP_SHARED);
    else if (strcmp(mode, "break") == 0)
        memset(sbrk((intptr_t)size), 1, size);
    else if (strcmp(mode, "storage") == 0)
        start(use_storage, (unsigned)(size / COPY));
    else if (strcmp(mode, "threads") == 0)
        start(keep_blocks, MANY);
    else if (strcmp(mode, "returned") == 0)
        start(return_from, 1);
    else if (strcmp(mode, "register") == 0)
        return keep_in_register();
    else if (strcmp(mode, "caller") == 0)
        return keep_over_call();
    else if (strcmp(mode, "read") == 0)
        return keep_over_read();
    else if (strcmp(mode, "locked") == 0)
        free_locked();
    else if (strcmp(mode, "deep") == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_STACK, &limit);
        if (limit.rlim_cur < 2 * size) {
            limit.rlim_cur = 2 * size;
            if (setrlimit(RLIMIT_STACK, &limit) != 0)
                return 3;
            execv("/proc/self/exe", argv);
        }
        return descend(size);
    }
    park();
}
