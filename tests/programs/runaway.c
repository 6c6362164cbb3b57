/* runaway ROUNDS SIZE STEP
 *
 * A buffer that realloc grows to SIZE bytes, and STEP more in each of ROUNDS; the one before is then cut to a few bytes, which
 * stay. What that leaves is always STEP bytes too short for the next, and small blocks keep it from merging: two buffers are
 * in use at a time, and glibc's heap has all of them. Then it pauses.
 */
#include "target.h"

enum { PIN = 100, GROWTH = 64 << 10 };

static char *grown(size_t size)
{
    char *buffer = malloc(GROWTH);
    memset(buffer, 1, GROWTH);
    for (size_t have = GROWTH; have < size; ) {
        size_t next = have + GROWTH < size ? have + GROWTH : size;
        buffer = realloc(buffer, next);
        memset(buffer + have, 1, next - have);
        have = next;
    }
    return buffer;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t rounds = strtoull(argv[1], NULL, 10), size = strtoull(argv[2], NULL, 10), step = strtoull(argv[3], NULL, 10);
    char *volatile last = malloc(size + rounds * step + GROWTH);
    free(last); /* from now on glibc maps no block of such a size by itself */
    last = NULL;
    for (size_t round = 0; round < rounds; round++) {
        char *buffer = grown(size + round * step);
        if (last != NULL && realloc(last, PIN) == NULL)
            abort();
        last = buffer;
    }
    park();
}
