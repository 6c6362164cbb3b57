/* odd_places SEED TABLE: pointers in packed structures, static ones and in blocks, at addresses that are no multiples of
 * 8. No leak checker looks there: what only they hold counts as lost, as it does for LeakSanitizer and valgrind. */
#include "planted.h"

struct __attribute__((packed)) packed { char tag; void *pointer; };

struct packed odd[64] __attribute__((aligned(64)));
struct packed *held;

static void plant(void)
{
    size_t count = planted_between(8, 64);
    for (size_t i = 0; i < count; i++) {
        size_t size = planted_between(1, 900);
        /* Every eighth one lies at a multiple of 8. */
        int aligned = (uintptr_t)&odd[i].pointer % 8 == 0;
        odd[i].pointer = aligned ? planted_block(size) : planted_lost(size, DIRECT, planted_group());
    }
    held = planted_block(sizeof *held);
    held->pointer = planted_lost(100, DIRECT, planted_group());
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
