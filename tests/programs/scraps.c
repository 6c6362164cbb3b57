/* scraps SEED COUNT THREADS TABLE
 *
 * Each thread, and the main one, allocates COUNT blocks of up to 3,000 bytes one after the other, then frees about half of
 * them at random: most of what is free covers no whole page. One block in 200 is large enough for a mapping of its own.
 * TABLE is {used, mapped, free, held} of u64 each: mallinfo2()'s uordblks, hblkhd and fordblks, which count all arenas,
 * and the bytes of the chunks that the program itself still holds. Needs glibc.malloc.tcache_count=0, so that what is
 * freed is free.
 */
#include "target.h"

#define MOST_THREADS 8

static uint64_t seed, count, held[MOST_THREADS + 1];
static pthread_barrier_t done;

static void fill(uint64_t number)
{
    uint64_t state = seeded(seed + number * 7919);
    char **blocks = pages(count * sizeof *blocks);
    for (uint64_t i = 0; i < count; i++) {
        size_t size = i % 200 ? between(&state, 1, 3000) : between(&state, 200 << 10, 300 << 10);
        blocks[i] = malloc(size);
        if (blocks[i] == NULL)
            abort();
        memset(blocks[i], 1, size);
    }
    for (uint64_t i = 0; i < count; i++)
        if (i % 200 && draw(&state) % 2) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    for (uint64_t i = 0; i < count; i++)
        if (blocks[i] != NULL)
            held[number] += malloc_usable_size(blocks[i]) + (i % 200 ? 8 : 16);
}

static void *worker(void *number)
{
    fill((uint64_t)number);
    pthread_barrier_wait(&done);
    park();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    seed = strtoull(argv[1], NULL, 10);
    count = strtoull(argv[2], NULL, 10);
    uint64_t threads = strtoull(argv[3], NULL, 10), all = 0;
    if (threads > MOST_THREADS)
        return 2;
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    for (uint64_t i = 1; i <= threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, (void *)i))
            abort();
    }
    fill(0);
    pthread_barrier_wait(&done);
    for (uint64_t i = 0; i <= threads; i++)
        all += held[i];
    struct mallinfo2 info = mallinfo2();
    uint64_t table[] = {info.uordblks, info.hblkhd, info.fordblks, all};
    write_file(argv[4], table, sizeof table);
    park();
}
