/* interior SEED TABLE: blocks into whose middle alone a static word, or a block that is held, points; and such words in
 * lost blocks. What those point into is lost with them. */
#include "planted.h"

struct holder { char *inside; };

char *inside[200];
struct holder *holders[200];

static void plant(void)
{
    size_t count = planted_between(10, 200);
    for (size_t i = 0; i < count; i++) {
        size_t size = planted_between(32, 4000);
        char *block = planted_lost(size, INTERIOR, planted_group());
        /* Not to the last word, where the header of what follows may be meant. */
        char *middle = block + planted_between(1, size - 9);
        if (planted_between(0, 1)) {
            inside[i] = middle;
        } else {
            holders[i] = planted_block(sizeof *holders[i]);
            holders[i]->inside = middle;
        }
    }
    for (size_t left = planted_between(5, 50); left > 0; left--)
        planted_lost(planted_between(8, 800), DIRECT, planted_group());
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
