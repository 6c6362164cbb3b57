/* forged_spans GIB PAGES
 *
 * Reserves GIB GiB of memory, touches none of it, and describes it as the full spans of a tcmalloc: PAGES pages of 256
 * KiB each, cut into blocks of 8 bytes. It allocates nothing else.
 */
#include "target.h"

#define PAGE_BITS 18
#define LEAF_BITS 15
#define CLASSES 60

/* The table of the sizes of classes; the words before it keep another number from being its first. */
uint32_t before[4] = {1, 1, 1, 1};
uint32_t sizes[CLASSES + 8];
uint64_t root[1 << LEAF_BITS];

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t bytes = strtoull(argv[1], NULL, 10) << 30, length = strtoull(argv[2], NULL, 10), page = 1ull << PAGE_BITS;
    uint64_t start = ((uint64_t)pages(bytes + page) + page - 1) / page * page;
    uint64_t count = bytes / page / length, (*spans)[6] = pages(count * 48);
    for (int class = 0; class < CLASSES; class++)
        sizes[class] = 8 * class;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t first = start / page + i * length, handed_out = length * page / 8 - 1;
        spans[i][0] = first;
        spans[i][1] = length;
        spans[i][4] = handed_out < 65536 ? first * page : 0;
        spans[i][5] = (handed_out < 65536 ? handed_out : 65535) | 1 << 16;
        for (uint64_t at = first; at < first + length; at++) {
            uint64_t *leaf = (uint64_t *)root[at >> LEAF_BITS];
            if (leaf == NULL)
                root[at >> LEAF_BITS] = (uint64_t)(leaf = pages(8 << LEAF_BITS));
            leaf[at % (1 << LEAF_BITS)] = (uint64_t)spans[i];
        }
    }
    park();
}
