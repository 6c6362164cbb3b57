/* two_pinning FIRST SECOND SIZE: the tables light and heavy hold FIRST and SECOND blocks, of 96 and 800 bytes. Before
 * each block, a block of SIZE bytes is allocated, and freed in the end. No block has a mapping of its own.
 */
#include "target.h"

char **light, **heavy;

static char **fill(size_t count, size_t size, size_t kept, char **freed)
{
    char **table = calloc(count, sizeof *table);
    for (size_t i = 0; i < count; i++) {
        freed[i] = memset(malloc(size), 1, size);
        table[i] = memset(malloc(kept), 1, kept);
    }
    return table;
}

int main(int argc, char **arguments)
{
    if (argc != 4)
        return 1;
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    size_t first = strtoull(arguments[1], NULL, 10), second = strtoull(arguments[2], NULL, 10);
    size_t size = strtoull(arguments[3], NULL, 10);
    char **freed = calloc(first + second, sizeof *freed);
    light = fill(first, size, 96, freed);
    heavy = fill(second, size, 800, freed + first);
    for (size_t i = 0; i < first + second; i++)
        free(freed[i]);
    free(freed);
    park();
}
