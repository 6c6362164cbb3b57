/* leaks SEED TABLE
 *
 * Rests. At the first line it leaks: blocks of three sizes that nobody else has, one with a mapping of its own, and what
 * threads that stay alive hold in arenas of their own; it fills a run and frees all of it but its ends: a hole.
 * TABLE is u64 each: for each of the three sizes the bytes of a chunk and how many there are, the bytes of the mapped
 * chunk's mapping, the number of threads, the address and the size of the hole.
 */
#include "target.h"

#define KINDS 3
#define MOST_THREADS 4
#define HOLE_BLOCKS 40
#define HOLE_BLOCK 50000

static uint64_t random_state;
static uint64_t table[2 * KINDS + 4];
static pthread_barrier_t held;

static void *hold(void *unused)
{
    char *block = malloc(7000);
    if (block == NULL)
        abort();
    memset(block, 1, 7000);
    pthread_barrier_wait(&held);
    park();
    return unused;
}

static uint64_t header(void *block)
{
    return *((uint64_t *)block - 1) & ~7ULL;
}

static void leak(size_t kind)
{
    /* Larger than what thread caches and fast bins take, and apart from each other. */
    size_t size = 2000 + 1000 * kind + 16 * between(&random_state, 0, 50);
    size_t count = between(&random_state, 100, 3000);
    for (size_t i = 0; i < count; i++) {
        char *block = malloc(size);
        if (block == NULL)
            abort();
        memset(block, 1, size);
        table[2 * kind] = header(block);
    }
    table[2 * kind + 1] = count;
}

static void map_one(void)
{
    size_t size = between(&random_state, 3 << 20, 9 << 20);
    char *block = malloc(size);
    if (block == NULL)
        abort();
    memset(block, 1, size);
    table[2 * KINDS] = header(block);
}

static void make_hole(void)
{
    char *blocks[HOLE_BLOCKS + 2];
    for (size_t i = 0; i < HOLE_BLOCKS + 2; i++)
        if ((blocks[i] = malloc(HOLE_BLOCK)) == NULL)
            abort();
    for (size_t i = 1; i <= HOLE_BLOCKS; i++)
        free(blocks[i]);
    table[2 * KINDS + 2] = (uint64_t)blocks[1];
    table[2 * KINDS + 3] = (uint64_t)(blocks[HOLE_BLOCKS + 1] - blocks[1]);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    mallopt(M_MMAP_THRESHOLD, 2 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    char byte;
    if (read(0, &byte, 1) != 1)
        return 1;
    for (size_t kind = 0; kind < KINDS; kind++)
        leak(kind);
    map_one();
    size_t threads = between(&random_state, 1, MOST_THREADS);
    table[2 * KINDS + 1] = threads;
    pthread_barrier_init(&held, NULL, (unsigned)threads + 1);
    pthread_t thread;
    for (size_t i = 0; i < threads; i++)
        pthread_create(&thread, NULL, hold, NULL);
    pthread_barrier_wait(&held);
    /* Threads take memory from the main arena: the hole comes after them. */
    make_hole();
    write_file(argv[2], table, sizeof table);
    return read(0, &byte, 1) < 0;
}
