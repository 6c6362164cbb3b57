/* faults SEED FAULT FILE
 *
 * A program with one fault, or none. It comes to rest when it reads standard input; at the first line it does what the
 * advice says that can be done from within: it calls malloc_trim(0), unmaps, or ends its threads. FAULT: chunks, top,
 * lowered (top beyond the threshold), raised (top below one that the program sets), large, growing, reserved (the same buffers, as large as they will be from the
 * beginning), tops (of threads' arenas, below a risen threshold), small (the same below the default), mapped, shared,
 * file (FILE, which is written), stacks, fork, huge (only with huge pages), healthy.
 */
#include "target.h"

#include <sys/prctl.h>

#define SIZE ((size_t)48 << 20)
#define BLOCKS 24000
#define WORKERS 6
#define SMALL_WORKERS 100
#define STACKS 32
#define GROWING 40
#define GROWN ((size_t)4 << 20)
#define DEEP ((size_t)1 << 20)

static uint64_t random_state;
static pthread_barrier_t ready, leave;
static char *blocks[BLOCKS];

/* Freeing a mapped chunk makes its size the mmap threshold, and twice that the trim threshold. */
static void raise_thresholds(void)
{
    char *large = malloc((size_t)30 << 20);
    *(volatile char *)large = 1;
    free(large);
}

/* Larger than what a thread's cache takes. */
static void allocate_small(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = between(&random_state, 1100, 3400);
        blocks[i] = memset(malloc(size), 1, size);
    }
}

static void free_runs(size_t kept_of)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % kept_of != 0)
            free(blocks[i]);
}

/* free() trimmed nothing while the threshold was high, and nobody has freed anything since it is low again. */
static void lower_threshold(void)
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    allocate_small();
    free_runs(BLOCKS);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

/* Whatever MALLOC_TRIM_THRESHOLD_ said. */
static void raise_threshold(void)
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    allocate_small();
    free_runs(BLOCKS);
}

static void large_buffers(void)
{
    raise_thresholds();
    for (size_t i = 0; i < 120; i++) {
        size_t size = between(&random_state, 200 << 10, 1 << 20);
        blocks[i] = memset(malloc(size), 1, size);
        memset(malloc(3000), 1, 3000);
    }
    for (size_t i = 0; i < 119; i++)
        if (draw(&random_state) % 3 != 0)
            free(blocks[i]);
}

/* Each is in the others' way. */
static void growing_buffers(int reserved)
{
    size_t size[GROWING] = {0}, grown[GROWING], left = GROWING;
    raise_thresholds();
    for (size_t i = 0; i < GROWING; i++) {
        grown[i] = between(&random_state, GROWN / 2, GROWN) / 8 * 8;
        blocks[i] = malloc(reserved ? grown[i] : 8192);
    }
    while (left > 0) {
        size_t i = draw(&random_state) % GROWING, next = size[i] + size[i] / 32 * 8 + 8192;
        if (size[i] == grown[i])
            continue;
        if (next > grown[i])
            next = grown[i];
        if (!reserved)
            blocks[i] = realloc(blocks[i], next);
        for (uint64_t *at = (uint64_t *)(blocks[i] + size[i]); at < (uint64_t *)(blocks[i] + next); at++)
            *at = draw(&random_state);
        size[i] = next;
        left -= next == grown[i];
    }
}

/* Buffers of which nothing but malloc's own header is ever written. */
static void untouched_buffers(void)
{
    raise_thresholds();
    for (size_t i = 0; i < 60; i++) {
        blocks[i] = malloc(between(&random_state, 700 << 10, 1 << 20));
        memset(malloc(3000), 1, 3000);
    }
    for (size_t i = 0; i < 60; i++)
        free(blocks[i]);
}

static void *grow_top(void *argument)
{
    size_t count = (size_t)argument, size = 5000;
    char **own = pages(count * sizeof *own);
    for (size_t i = 0; i < count; i++)
        own[i] = memset(malloc(size), 1, size);
    for (size_t i = 0; i < count; i++)
        free(own[i]);
    pthread_barrier_wait(&ready);
    park();
    return NULL;
}

static void thread_tops(size_t threads, size_t count)
{
    pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, grow_top, (void *)count) != 0)
            abort();
    }
    pthread_barrier_wait(&ready);
}

static void *use_stack(void *argument)
{
    char deep[DEEP];
    volatile char *touched = deep;
    for (size_t i = 0; i < DEEP; i += 4096)
        touched[i] = 1;
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&leave);
    return argument;
}

static char *map(int flags, int file)
{
    int protection = file < 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    char *memory = mmap(NULL, SIZE, protection, flags | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    volatile char sum = 0;
    if (memory == MAP_FAILED)
        abort();
    for (size_t i = 0; i < SIZE; i += 4096) {
        if (file < 0)
            memory[i] = 1;
        sum += memory[i];
    }
    return memory;
}

static void rest(void)
{
    char line[64];
    if (read(0, line, sizeof line) <= 0)
        _exit(0);
}

static void rest_and_trim(void)
{
    rest();
    malloc_trim(0);
    rest();
}

static void rest_and_unmap(char *memory)
{
    rest();
    munmap(memory, SIZE);
    rest();
}

static void stacks(void)
{
    pthread_t threads[STACKS];
    pthread_barrier_init(&ready, NULL, STACKS + 1);
    pthread_barrier_init(&leave, NULL, STACKS + 1);
    for (size_t i = 0; i < STACKS; i++)
        if (pthread_create(&threads[i], NULL, use_stack, NULL) != 0)
            abort();
    pthread_barrier_wait(&ready);
    rest();
    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < STACKS; i++)
        pthread_join(threads[i], NULL);
    rest();
}

static void forked(void)
{
    allocate_small();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 9);
        park();
    }
    rest();
}

static void file_pages(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)SIZE) != 0)
        abort();
    rest_and_unmap(map(MAP_PRIVATE, file));
}

static void run(const char *fault, const char *path)
{
    if (strcmp(fault, "mapped") == 0)
        rest_and_unmap(map(MAP_PRIVATE, -1));
    else if (strcmp(fault, "shared") == 0)
        rest_and_unmap(map(MAP_SHARED, -1));
    else if (strcmp(fault, "file") == 0)
        file_pages(path);
    else if (strcmp(fault, "stacks") == 0)
        stacks();
    else if (strcmp(fault, "fork") == 0)
        forked();
    else if (strcmp(fault, "large") == 0)
        large_buffers();
    else if (strcmp(fault, "growing") == 0 || strcmp(fault, "reserved") == 0)
        growing_buffers(strcmp(fault, "reserved") == 0);
    else if (strcmp(fault, "huge") == 0)
        untouched_buffers();
    else if (strcmp(fault, "raised") == 0)
        raise_threshold();
    else if (strcmp(fault, "lowered") == 0)
        lower_threshold();
    else if (strcmp(fault, "tops") == 0) {
        raise_thresholds();
        thread_tops(WORKERS, 1600);
    } else if (strcmp(fault, "small") == 0)
        thread_tops(SMALL_WORKERS, 20);
    else
        allocate_small();
    if (strcmp(fault, "chunks") == 0)
        free_runs(between(&random_state, 20, 40));
    if (strcmp(fault, "top") == 0) {
        raise_thresholds();
        free_runs(BLOCKS);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    run(argv[2], argv[3]);
    rest_and_trim();
}
