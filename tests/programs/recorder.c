/* recorder THREADS SEED OPERATIONS SLOTS LARGEST MODE TABLE
 *
 * Random malloc, calloc, realloc, memalign and free in THREADS threads; then TABLE is written, malloc_stats() and
 * malloc_info() go to standard error, and every thread pauses. SLOTS pointers per thread live at most; LARGEST bounds
 * a request. MODE: 0 plain, 1 foreign sbrk() in between, 2 the break is blocked, so that the main arena grows by mmap,
 * 3 the main thread only starts the others, and pauses at once: for stops in the middle of many OPERATIONS,
 * 4 alignments up to a megabyte.
 *
 * TABLE is {pointer, usable, requested, live} of u64 each, in no order: every live pointer, and the last freed ones.
 * A freed pointer may have been handed out again: it is then inside a live one. The table itself lies outside malloc.
 */
#include "target.h"

#define FREED 65536
#define SHARED 64

struct record { uint64_t pointer, usable, requested, live; };
struct slot { void *pointer; size_t requested; };
struct worker {
    uint64_t random, freed_count;
    int is_first;
    struct slot *slots;
    uint64_t *freed;
    pthread_t thread;
};

static size_t operations, slot_count, largest;
static int mode, thread_count;
static struct slot exchange[SHARED];
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t created, done, told;

static size_t random_size(uint64_t *random)
{
    unsigned kind = (unsigned)(draw(random) % 100);
    size_t limit = kind < 55 ? 128 : kind < 85 ? 1200 : kind < 97 ? 16384 : largest;
    return between(random, kind < 2 ? 0 : 1, limit < largest ? limit : largest);
}

static void *allocate(uint64_t *random, size_t size)
{
    switch (draw(random) % 8) {
    case 0:
        return calloc(1, size);
    case 1:
        return memalign((size_t)16 << (draw(random) % (mode == 4 ? 17 : 9)), size);
    default:
        return malloc(size);
    }
}

static void release(struct worker *self, struct slot *slot)
{
    self->freed[self->freed_count++ % FREED] = (uint64_t)slot->pointer;
    free(slot->pointer);
    slot->pointer = NULL;
}

/* Another thread's pointer for ours: it is freed here, into this thread's tcache, but belongs to the other's arena. */
static void swap_with_others(uint64_t *random, struct slot *slot)
{
    pthread_mutex_lock(&exchange_lock);
    struct slot *other = &exchange[draw(random) % SHARED];
    struct slot theirs = *other;
    *other = *slot;
    *slot = theirs;
    pthread_mutex_unlock(&exchange_lock);
}

static void fill(uint64_t *random, struct slot *slot)
{
    slot->requested = random_size(random);
    slot->pointer = allocate(random, slot->requested);
    if (slot->pointer == NULL)
        abort();
}

static void resize(struct worker *self, struct slot *slot)
{
    uint64_t old = (uint64_t)slot->pointer;
    slot->requested = random_size(&self->random) + 1;
    slot->pointer = realloc(slot->pointer, slot->requested);
    if ((uint64_t)slot->pointer != old)
        self->freed[self->freed_count++ % FREED] = old;
}

/* sbrk() is not safe in two threads: only the first, whose arena grows by it, calls it; see main() for the other way. */
static void disturb(struct worker *self)
{
    if (mode == 1 && self->is_first && draw(&self->random) % 2048 == 0)
        sbrk((intptr_t)(16 * between(&self->random, 1, 600)));
}

static void one_operation(struct worker *self)
{
    struct slot *slot = &self->slots[draw(&self->random) % slot_count];
    disturb(self);
    if (slot->pointer == NULL)
        fill(&self->random, slot);
    else if (draw(&self->random) % 8 == 0)
        swap_with_others(&self->random, slot);
    else if (draw(&self->random) % 5 == 0)
        resize(self, slot);
    else
        release(self, slot);
}

/* Every few thousand operations a run of slots is dropped, so that neighbours merge. */
static void drop_run(struct worker *self)
{
    size_t first = draw(&self->random) % slot_count;
    size_t count = between(&self->random, 0, slot_count / 4);
    for (size_t i = first; i < slot_count && i < first + count; i++)
        if (self->slots[i].pointer != NULL)
            release(self, &self->slots[i]);
}

/* No thread begins before all exist: what pthread_create() allocates lies nowhere that a recorded pointer was. */
static void work(struct worker *self)
{
    pthread_barrier_wait(&created);
    for (size_t i = 0; i < operations; i++) {
        one_operation(self);
        if (i % 8192 == 8191)
            drop_run(self);
    }
    pthread_barrier_wait(&done);
}

static void *start(void *argument)
{
    work(argument);
    pthread_barrier_wait(&told);
    park();
    return NULL;
}

static uint64_t add_live(struct record *records, uint64_t count, const struct slot *slot)
{
    if (slot->pointer == NULL)
        return count;
    records[count] = (struct record){(uint64_t)slot->pointer, malloc_usable_size(slot->pointer), slot->requested, 1};
    return count + 1;
}

static uint64_t add_worker(struct record *records, uint64_t count, const struct worker *worker)
{
    for (size_t i = 0; i < slot_count; i++)
        count = add_live(records, count, &worker->slots[i]);
    for (uint64_t i = 0; i < worker->freed_count && i < FREED; i++)
        records[count++] = (struct record){worker->freed[i], 0, 0, 0};
    return count;
}

static void write_table(const char *path, const struct worker *workers)
{
    size_t most = (size_t)thread_count * (slot_count + FREED) + SHARED;
    struct record *records = pages(most * sizeof *records);
    uint64_t count = 0;
    for (int i = 0; i < thread_count; i++)
        count = add_worker(records, count, &workers[i]);
    for (int i = 0; i < SHARED; i++)
        count = add_live(records, count, &exchange[i]);
    write_file(path, records, count * sizeof *records);
}

static void prepare(struct worker *worker, uint64_t seed)
{
    worker->random = seeded(seed);
    worker->slots = pages(slot_count * sizeof *worker->slots);
    worker->freed = pages(FREED * sizeof *worker->freed);
}

int main(int argc, char **argv)
{
    if (argc != 8)
        return 2;
    thread_count = atoi(argv[1]);
    operations = strtoull(argv[3], NULL, 10);
    slot_count = strtoull(argv[4], NULL, 10);
    largest = strtoull(argv[5], NULL, 10);
    mode = atoi(argv[6]);
    pthread_barrier_init(&created, NULL, (unsigned)thread_count);
    pthread_barrier_init(&done, NULL, (unsigned)thread_count);
    pthread_barrier_init(&told, NULL, (unsigned)thread_count);
    struct worker *workers = pages((size_t)thread_count * sizeof *workers);
    for (int i = 0; i < thread_count; i++)
        prepare(&workers[i], strtoull(argv[2], NULL, 10) * 1000 + (uint64_t)i);
    workers[0].is_first = 1;
    if (mode == 1)
        mallopt(M_TRIM_THRESHOLD, 1 << 30); /* no thread may shrink the first one's arena by sbrk() */
    if (mode == 2)
        block_break();
    for (int i = mode == 3 ? 0 : 1; i < thread_count; i++)
        pthread_create(&workers[i].thread, NULL, start, &workers[i]);
    if (mode == 3)
        park();
    work(&workers[0]);
    write_table(argv[7], workers);
    malloc_stats();
    malloc_info(0, stderr);
    pthread_barrier_wait(&told);
    park();
}
