/* pinning COUNT SIZE: allocates COUNT blocks of SIZE bytes, a small block after each, and frees the large blocks. The
 * table long_lived holds the small blocks. No block has a mapping of its own.
 */
#include "target.h"

struct connection {
    int number;
    char state[92];
};

struct connection **long_lived;

int main(int argc, char **arguments)
{
    if (argc != 3)
        return 1;
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 17);
    size_t count = strtoull(arguments[1], NULL, 10), size = strtoull(arguments[2], NULL, 10);
    char **buffers = calloc(count, sizeof *buffers);
    long_lived = calloc(count, sizeof *long_lived);
    for (size_t i = 0; i < count; i++) {
        buffers[i] = memset(malloc(size), 1, size);
        long_lived[i] = memset(malloc(sizeof **long_lived), 1, sizeof **long_lived);
    }
    for (size_t i = 0; i < count; i++)
        free(buffers[i]);
    free(buffers);
    park();
}
