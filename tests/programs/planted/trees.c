/* trees SEED TABLE: trees of random shape that nobody holds, with parents and without, one of which is held; and blocks
 * of every size, some with a mapping of their own. */
#include "planted.h"

struct tree { struct tree *left, *right; size_t key; };

struct tree *held;

static void insert(struct tree **place, uint64_t group, int is_lost)
{
    size_t key = planted_between(0, 1000000);
    enum planted_kind kind = *place == 0 ? DIRECT : INDIRECT;
    while (*place != 0)
        place = key < (*place)->key ? &(*place)->left : &(*place)->right;
    struct tree *node = is_lost ? planted_lost(sizeof *node, kind, group) : planted_block(sizeof *node);
    *node = (struct tree){ 0, 0, key };
    *place = node;
}

static struct tree *grown(int is_lost)
{
    uint64_t group = planted_group();
    struct tree *root = 0;
    for (size_t left = planted_between(1, 80); left > 0; left--)
        insert(&root, group, is_lost);
    return root;
}

static void plant(void)
{
    for (size_t left = planted_between(2, 9); left > 0; left--)
        grown(1);
    held = grown(0);
    for (size_t left = planted_between(5, 50); left > 0; left--)
        planted_lost(planted_between(1, 3000), DIRECT, planted_group());
    for (size_t left = planted_between(1, 4); left > 0; left--)
        planted_lost(planted_between(1 << 18, 1 << 20), DIRECT, planted_group());
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
