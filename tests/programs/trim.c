/* trim SEED THREADS OPERATIONS SLOTS LARGEST MODE
 *
 * Fragments the main arena and those of THREADS - 1 more threads, then reads standard input. For each line, a number,
 * it calls malloc_trim(NUMBER) and reads again. MODE, added up: 1 somebody else moves the break at the end, 2 the break
 * is blocked, 4 all memory is locked, 8 a child that was forked holds the same pages, 16 malloc_trim() was called before
 * and some was allocated and freed since, 32 fast bins are filled last. What is in huge pages stays there, but the kernel
 * makes no more of them in the background.
 */
#include "target.h"

#include <sys/prctl.h>

#define FAST 120

static size_t operations, slot_count, largest;
static int mode;
static pthread_barrier_t filled;

struct worker {
    uint64_t random;
    char **slots;
};

/* Of large blocks often only a part is touched: what a program never wrote is free and not resident. */
static char *allocate(uint64_t *random)
{
    uint64_t kind = draw(random) % 8;
    size_t size = kind < 3 ? between(random, 1, FAST) : kind < 6 ? between(random, 1, 6000) : between(random, 1, largest);
    char *block = malloc(size);
    if (block == NULL)
        abort();
    memset(block, 1, draw(random) % 3 ? size : between(random, 0, size));
    return block;
}

static void churn(struct worker *self, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char **slot = &self->slots[draw(&self->random) % slot_count];
        if (*slot == NULL)
            *slot = allocate(&self->random);
        else {
            free(*slot);
            *slot = NULL;
        }
    }
}

static void drop(struct worker *self, unsigned percent)
{
    for (size_t i = 0; i < slot_count; i++) {
        char **slot = &self->slots[i];
        if (*slot != NULL && draw(&self->random) % 100 < percent) {
            free(*slot);
            *slot = NULL;
        }
    }
}

/* Runs of small blocks that touch large ones: the thread's cache is full after seven of a size, the rest is fast bins'. */
static void fill_fast_bins(struct worker *self)
{
    char *small[400], *large[40];
    for (size_t i = 0; i < 400; i++) {
        if (i % 10 == 0)
            memset(large[i / 10] = malloc(20000 + i), 1, 20000);
        small[i] = malloc(between(&self->random, 1, FAST));
    }
    for (size_t i = 0; i < 40; i++)
        free(large[i]);
    for (size_t i = 0; i < 400; i++)
        if (i % 40 != 7)
            free(small[i]);
}

static void work(struct worker *self)
{
    churn(self, operations);
    drop(self, (unsigned)between(&self->random, 20, 90));
    if (mode & 16) {
        malloc_trim(0);
        churn(self, operations / 4);
        drop(self, 50);
    }
    if (mode & 32)
        fill_fast_bins(self);
    pthread_barrier_wait(&filled);
}

static void *start(void *argument)
{
    work(argument);
    park();
    return NULL;
}

static void prepare(struct worker *worker, uint64_t seed)
{
    worker->random = seeded(seed);
    worker->slots = pages(slot_count * sizeof *worker->slots);
}

static void answer(void)
{
    char line[64];
    ssize_t size;
    while ((size = read(0, line, sizeof line - 1)) > 0) {
        line[size] = 0;
        malloc_trim(strtoull(line, NULL, 10));
    }
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    size_t threads = strtoull(argv[2], NULL, 10);
    operations = strtoull(argv[3], NULL, 10);
    slot_count = strtoull(argv[4], NULL, 10);
    largest = strtoull(argv[5], NULL, 10);
    mode = atoi(argv[6]);
    struct worker *workers = pages(threads * sizeof *workers);
    pthread_barrier_init(&filled, NULL, (unsigned)threads);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (mode & 2)
        block_break();
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        prepare(&workers[i], strtoull(argv[1], NULL, 10) * 1000 + i);
        if (i > 0)
            pthread_create(&thread, NULL, start, &workers[i]);
    }
    work(&workers[0]);
    if (mode & 1)
        sbrk((intptr_t)(16 * between(&workers[0].random, 1, 600)));
    if (mode & 4)
        mlockall(MCL_CURRENT);
    if (mode & 8 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 9);
        park();
    }
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    answer();
}
