/* reserved SEED
 *
 * Reserves 1 TiB that may not be touched (PROT_NONE) and 1 TiB that nobody has touched (MAP_NORESERVE), and touches a
 * random number of pages of a third mapping, of 16 MiB. Then it pauses.
 */
#include "target.h"

#define TERABYTE ((size_t)1 << 40)

static char *reserve(size_t size, int protection)
{
    char *memory = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    uint64_t random = seeded(strtoull(argv[1], NULL, 10));
    reserve(TERABYTE, PROT_READ | PROT_WRITE);
    reserve(TERABYTE, PROT_NONE); /* lies between its neighbours, which would else be one mapping */
    char *touched = reserve(16 << 20, PROT_READ | PROT_WRITE);
    size_t count = between(&random, 1, 4096);
    for (size_t i = 0; i < count; i++)
        touched[4096 * between(&random, 0, 4095)] = 1;
    park();
}
