/* holes SEED GAPS LARGEST WHERE RELEASE TABLE
 *
 * Allocates runs of blocks one after the other from the top of an arena, frees whole runs ("gaps"), keeps single blocks
 * between them, and pauses. WHERE: 0 the main arena, 1 an arena of a second thread, 2 the same, but that thread has
 * ended. RELEASE: 0 nothing, 1 malloc_trim(0), 2 madvise(MADV_DONTNEED) on the inner half of every large block.
 *
 * TABLE is {pointer, usable, held} of u64 each in the order of the addresses: a hole is a maximal run of neighbours that are
 * not held. Blocks of a gap are large (they merge when freed) or small (they stay in the tcache or a fast bin).
 * The last block is small, is freed first and stays in the tcache, next to the top chunk.
 */
#include "target.h"

#define LARGE 1100
#define MOST 65536
#define TAIL_SIZE 1000

struct record { uint64_t pointer, usable, held; };

static struct record *records;
static uint64_t random_state, count;
static size_t gaps, largest;
static int where, release_mode;

static void add(size_t size, int held)
{
    char *pointer = malloc(size);
    if (pointer == NULL || count == MOST)
        abort();
    memset(pointer, 1, size);
    records[count++] = (struct record){(uint64_t)pointer, malloc_usable_size(pointer), (uint64_t)held};
}

static void add_gap(void)
{
    size_t blocks = between(&random_state, 1, 5);
    for (size_t i = 0; i < blocks; i++) {
        int small = draw(&random_state) % 4 == 0;
        add(small ? between(&random_state, 1, 900) : between(&random_state, LARGE, largest), 0);
    }
}

static void free_block(uint64_t i)
{
    free((void *)records[i].pointer);
}

/* In random order, so that blocks merge forwards, backwards and on both sides. */
static void free_gaps(void)
{
    uint64_t *order = pages(MOST * sizeof *order), n = 0;
    for (uint64_t i = 0; i + 1 < count; i++)
        if (!records[i].held)
            order[n++] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = draw(&random_state) % i, kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
    for (uint64_t i = 0; i < n; i++)
        free_block(order[i]);
    munmap(order, MOST * sizeof *order);
}

static void give_back_inner(const struct record *record)
{
    uint64_t quarter = record->usable / 4;
    uint64_t start = (record->pointer + quarter + 4095) & ~4095ULL;
    uint64_t end = (record->pointer + record->usable - quarter) & ~4095ULL;
    if (end > start)
        madvise((void *)start, end - start, MADV_DONTNEED);
}

static void give_back(void)
{
    if (release_mode == 1)
        malloc_trim(0);
    for (uint64_t i = 0; release_mode == 2 && i < count; i++)
        if (!records[i].held && records[i].usable > 64 * 1024)
            give_back_inner(&records[i]);
}

static void fill(void)
{
    for (size_t i = 0; i < gaps; i++) {
        for (size_t pins = between(&random_state, 1, 3); pins > 0; pins--)
            add(between(&random_state, 1, 3000), 1);
        add_gap();
    }
    add(between(&random_state, 1, 3000), 1);
    add(TAIL_SIZE, 0);
    free_block(count - 1);
    free_gaps();
    give_back();
}

static void *start(void *argument)
{
    (void)argument;
    fill();
    return NULL;
}

static void *start_and_stay(void *argument)
{
    fill();
    *(volatile int *)argument = 1;
    park();
    return NULL;
}

/* The ended thread's tcache is gone: its own structure, the arena's first chunk, is free, and so are all that it held. */
static void note_end(void)
{
    memmove(records + 1, records, count * sizeof *records);
    records[0] = (struct record){records[1].pointer - 0x290, 0x288, 0};
    count++;
}

static void run(void)
{
    static volatile int filled;
    pthread_t thread;
    if (where == 0)
        fill();
    else if (where == 1 && pthread_create(&thread, NULL, start_and_stay, (void *)&filled) == 0)
        while (!filled)
            usleep(1000);
    else if (pthread_create(&thread, NULL, start, NULL) == 0 && pthread_join(thread, NULL) == 0)
        note_end();
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    gaps = strtoull(argv[2], NULL, 10);
    largest = strtoull(argv[3], NULL, 10);
    where = atoi(argv[4]);
    release_mode = atoi(argv[5]);
    records = pages(MOST * sizeof *records);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    run();
    write_file(argv[6], records, count * sizeof *records);
    park();
}
