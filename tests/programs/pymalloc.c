/* A pymalloc of its own, laid out as CPython's: pymalloc ALIGNMENT POOL_SIZE SEED REQUESTS TABLE.

   usedpools, arenas, pools and blocks as Objects/obmalloc.c describes them. Allocates and frees at random, writes TABLE ("size pools used free" for each size class with pools,
   then "arenas N" and "free_pools N"), which it has counted itself, then pauses. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THRESHOLD = 512, MOST_CLASSES = 64, ARENA_POOLS = 64, MOST_ARENAS = 64, MOST_HELD = 1 << 16 };

struct pool {
    uint32_t count, padding;
    void *freeblock;
    struct pool *next, *prev;
    uint32_t arenaindex, szidx, nextoffset, maxnextoffset;
};

struct arena {
    uintptr_t address;
    char *pool_address;
    uint32_t nfreepools, ntotalpools;
    struct pool *freepools;
    struct arena *nextarena, *prevarena;
};

/* As in 2.7 to 3.9: list heads, each lying so that its pair is a pool header's next and prev. */
static struct pool *usedpools[2 * MOST_CLASSES];
static uint32_t maxarenas;
static struct arena *arenas;

static uint32_t alignment, pool_size, classes;
static struct { void *block; uint32_t size_class; } held[MOST_HELD];
static uint32_t used_of[MOST_CLASSES];

static struct pool *head_of(uint32_t size_class)
{
    return (struct pool *)((char *)&usedpools[2 * size_class] - 2 * sizeof(void *));
}

static struct pool *take_pool(void)
{
    for (uint32_t index = 0; index < MOST_ARENAS; index++) {
        struct arena *arena = &arenas[index];
        if (!arena->address) {
            size_t size = (size_t)ARENA_POOLS * pool_size;
            char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (start == MAP_FAILED)
                exit(1);
            uintptr_t excess = (uintptr_t)start & (pool_size - 1);
            arena->address = (uintptr_t)start;
            arena->pool_address = start + (excess ? pool_size - excess : 0);
            arena->ntotalpools = arena->nfreepools = ARENA_POOLS - (excess != 0);
        }
        if (arena->freepools) {
            struct pool *pool = arena->freepools;
            arena->freepools = pool->next;
            arena->nfreepools--;
            return pool;
        }
        if (arena->nfreepools) {
            struct pool *pool = (struct pool *)arena->pool_address;
            arena->pool_address += pool_size;
            arena->nfreepools--;
            pool->arenaindex = index;
            return pool;
        }
    }
    exit(1);
}

static void link_in(struct pool *pool)
{
    struct pool *head = head_of(pool->szidx), *first = head->next;
    pool->next = first;
    pool->prev = head;
    first->prev = pool;
    head->next = pool;
}

static void unlink_pool(struct pool *pool)
{
    pool->next->prev = pool->prev;
    pool->prev->next = pool->next;
}

static void *allocate(uint32_t size_class)
{
    uint32_t size = (size_class + 1) * alignment;
    struct pool *pool = head_of(size_class)->next;
    if (pool == head_of(size_class)) {
        pool = take_pool();
        pool->szidx = size_class;
        pool->count = 0;
        pool->freeblock = NULL;
        pool->nextoffset = sizeof(struct pool);
        pool->maxnextoffset = pool_size - size;
        link_in(pool);
    }
    void *block = pool->freeblock;
    if (block) {
        pool->freeblock = *(void **)block;
    } else {
        block = (char *)pool + pool->nextoffset;
        pool->nextoffset += size;
    }
    pool->count++;
    if (!pool->freeblock && pool->nextoffset > pool->maxnextoffset)
        unlink_pool(pool);
    used_of[size_class]++;
    return block;
}

static void release(void *block, uint32_t size_class)
{
    struct pool *pool = (struct pool *)((uintptr_t)block & ~(uintptr_t)(pool_size - 1));
    int was_full = !pool->freeblock && pool->nextoffset > pool->maxnextoffset;
    *(void **)block = pool->freeblock;
    pool->freeblock = block;
    used_of[size_class]--;
    if (was_full)
        link_in(pool);
    if (--pool->count == 0) {
        struct arena *arena = &arenas[pool->arenaindex];
        unlink_pool(pool);
        pool->next = arena->freepools;
        arena->freepools = pool;
        arena->nfreepools++;
    }
}

static void write_table(const char *path)
{
    uint32_t pools_of[MOST_CLASSES] = {0}, free_pools = 0, count = 0;
    for (uint32_t index = 0; index < MOST_ARENAS && arenas[index].address; index++) {
        uintptr_t start = (arenas[index].address + pool_size - 1) & ~(uintptr_t)(pool_size - 1);
        for (char *at = (char *)start; at < arenas[index].pool_address; at += pool_size)
            pools_of[((struct pool *)at)->szidx] += ((struct pool *)at)->count != 0;
        free_pools += arenas[index].nfreepools;
        count++;
    }
    FILE *file = fopen(path, "w");
    for (uint32_t size_class = 0; size_class < classes; size_class++) {
        uint32_t size = (size_class + 1) * alignment, room = (pool_size - (uint32_t)sizeof(struct pool)) / size;
        if (pools_of[size_class])
            fprintf(file, "%u %u %u %u\n", size, pools_of[size_class], used_of[size_class],
                    pools_of[size_class] * room - used_of[size_class]);
    }
    fprintf(file, "arenas %u\nfree_pools %u\n", count, free_pools);
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    alignment = (uint32_t)atoi(argv[1]);
    pool_size = (uint32_t)atoi(argv[2]);
    classes = THRESHOLD / alignment;
    srandom((unsigned)atoi(argv[3]));
    long requests = atol(argv[4]);
    arenas = calloc(MOST_ARENAS, sizeof *arenas);
    maxarenas = MOST_ARENAS;
    for (uint32_t size_class = 0; size_class < classes; size_class++)
        head_of(size_class)->next = head_of(size_class)->prev = head_of(size_class);
    for (long i = 0; i < requests; i++) {
        size_t place = (size_t)random() % MOST_HELD;
        if (held[place].block)
            release(held[place].block, held[place].size_class);
        /* Small ones most, and now and then a place stays empty. */
        uint32_t size_class = (uint32_t)random() % (1 + (uint32_t)random() % classes);
        held[place].block = random() % 3 ? allocate(size_class) : NULL;
        held[place].size_class = size_class;
    }
    write_table(argv[5]);
    pause();
    return (int)maxarenas;
}
