/* foreign_map ENTRIES KNOWN
 *
 * Static data leads to a map as that of mimalloc 3: its first word says where it ends, the others lead to submaps with a word
 * for each 64 KiB of addresses. ENTRIES slices have a page there. What is known of a page is laid out as in no release, but for
 * the first KNOWN: these are as 3.3 has a page with memory of its own, with four blocks in use.
 */
#include "target.h"

#define WORDS (1 << 18)
#define SLICE ((size_t)1 << 16)
#define SUBMAP ((size_t)1 << 13)
#define BLOCK 1024

struct memory_id { void *base; size_t size, kind; };
struct known {
    uint64_t thread, free;
    uint16_t used, capacity, reserved, bits;
    uint64_t local_free, xthread_free, block_size;
    char *start;
    uint64_t heaps[5];
    struct memory_id memory;
};
struct foreign { uint64_t junk[11]; char *start; uint64_t more[4]; };
union page { struct known known; struct foreign foreign; };

uint64_t *page_map;

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t entries = strtoull(argv[1], NULL, 10), known = strtoull(argv[2], NULL, 10);
    page_map = pages((WORDS + SUBMAP) * sizeof *page_map);
    page_map[0] = (uint64_t)(page_map + WORDS);
    char *memory = pages((entries + 1) * SLICE);
    memory += -(uintptr_t)memory % SLICE;
    union page *own = pages(entries * sizeof *own);
    for (size_t i = 0; i < entries; i++) {
        char *slice = memory + i * SLICE;
        memset(slice, 0x5A, SLICE);
        size_t number = (uintptr_t)slice / SLICE;
        uint64_t *submap = (uint64_t *)page_map[number / SUBMAP];
        if (submap == NULL) {
            submap = pages(SUBMAP * sizeof *submap);
            page_map[number / SUBMAP] = (uint64_t)submap;
        }
        submap[number % SUBMAP] = (uint64_t)&own[i];
        if (i < known)
            own[i].known = (struct known){.thread = 64, .used = 4, .capacity = 4, .reserved = 4, .block_size = BLOCK,
                                          .start = slice, .memory = {slice, SLICE, 1}};
        else {
            memset(&own[i], 0xEE, sizeof own[i]);
            own[i].foreign.start = slice;
        }
    }
    park();
}
