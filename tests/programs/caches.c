/* caches SEED THREADS TABLE
 *
 * Every thread, the first included, frees some blocks of a few sizes, which its tcache keeps; then all pause. TABLE is
 * {tid, size of the chunks, blocks} of u64 each. What a thread takes out of its tcache meanwhile, it has put there.
 */
#include "target.h"

#include <sys/syscall.h>

#define SIZES 5
#define MOST_CACHED 7
#define MOST_THREADS 64

struct record { uint64_t tid, size, blocks; };

static struct record records[MOST_THREADS * SIZES];
static uint64_t seed;
static pthread_barrier_t done;

/* Distinct sizes, far above those that pthread_create() and the like ask for. */
static void fill(struct record *own, uint64_t *random)
{
    uint64_t tid = (uint64_t)syscall(SYS_gettid);
    for (size_t kind = 0; kind < SIZES; kind++) {
        void *blocks[MOST_CACHED];
        size_t size = 500 + 96 * kind + between(random, 0, 80), count = between(random, 1, MOST_CACHED);
        for (size_t i = 0; i < count; i++)
            blocks[i] = malloc(size);
        own[kind] = (struct record){tid, malloc_usable_size(blocks[0]) + 8, count};
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
}

static void *start(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    uint64_t random = seeded(seed * 1000 + number);
    fill(records + number * SIZES, &random);
    pthread_barrier_wait(&done);
    if (number > 0)
        park();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    seed = strtoull(argv[1], NULL, 10);
    size_t threads = strtoull(argv[2], NULL, 10);
    pthread_barrier_init(&done, NULL, (unsigned)threads);
    for (size_t i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, start, (void *)(uintptr_t)i) != 0)
            abort();
    }
    start(NULL);
    write_file(argv[3], records, threads * SIZES * sizeof *records);
    park();
}
