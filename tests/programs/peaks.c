/* peaks THREADS BLOCKS ENDED
 *
 * Each of THREADS threads allocates BLOCKS blocks of 300 bytes, a result that is kept (`results`), and frees the blocks
 * again. With ENDED 1 the threads end. The main thread does the same once more, with `last` for its result. Then it waits.
 */
#include "target.h"

#define MOST 64

static char *results[MOST], *volatile last;
static size_t count;
static pthread_barrier_t together, done;
static int ended;

static char *peak(void)
{
    char **blocks = pages(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        blocks[i] = memset(malloc(300), 'b', 300);
    char *result = memset(malloc(500), 'r', 500);
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    munmap(blocks, count * sizeof *blocks);
    return result;
}

static void *work(void *place)
{
    /* Threads that are there at once have an arena each. */
    free(malloc(1));
    pthread_barrier_wait(&together);
    *(char **)place = peak();
    pthread_barrier_wait(&done);
    while (!ended)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t threads = strtoull(argv[1], NULL, 10);
    count = strtoull(argv[2], NULL, 10);
    ended = atoi(argv[3]);
    if (threads > MOST)
        return 2;
    pthread_t made[MOST];
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++)
        pthread_create(&made[i], NULL, work, &results[i]);
    pthread_barrier_wait(&done);
    for (size_t i = 0; ended && i < threads; i++)
        pthread_join(made[i], NULL);
    last = peak();
    park();
}
