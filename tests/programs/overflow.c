/* overflow THREADS
 *
 * Rests until a line comes on standard input; then it writes beyond a block and frees that block's neighbour, for which
 * glibc aborts it, while THREADS others are somewhere in malloc and free all the time.
 */
#include "target.h"

static void *be_busy(void *seed)
{
    uint64_t random = seeded((uint64_t)(uintptr_t)&seed);
    void *held[64] = {0};
    while (seed == NULL) {
        size_t i = draw(&random) % 64;
        free(held[i]);
        held[i] = malloc(between(&random, 1, 3000));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    char line;
    if (argc != 2)
        return 2;
    char *block = malloc(2000), *volatile neighbour = malloc(2000);
    char *volatile end = block + malloc_usable_size(block);
    for (int i = 0; i < atoi(argv[1]); i++)
        pthread_create(&thread, NULL, be_busy, NULL);
    if (read(0, &line, 1) != 1)
        return 1;
    memset(end, 'A', 8);
    free(neighbour);
    park();
}
