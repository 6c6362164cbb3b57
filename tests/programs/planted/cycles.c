/* cycles SEED TABLE: blocks that point to each other in a circle with tails, blocks that point to themselves, and a
 * circle that hangs from a block. */
#include "planted.h"

struct node { void *next, *tail, *own; char data[40]; };

void *held;

static struct node *circle(uint64_t group, enum planted_kind kind, size_t count)
{
    struct node *first = planted_lost(sizeof *first, kind, group), *last = first;
    for (; count > 1; count--) {
        struct node *node = planted_lost(sizeof *node, kind, group);
        last->next = node;
        last = node;
    }
    last->next = first;
    if (planted_between(0, 1))
        first->tail = planted_lost(planted_between(1, 200), INDIRECT, group);
    return first;
}

static void plant(void)
{
    for (size_t left = planted_between(3, 20); left > 0; left--)
        circle(planted_group(), CYCLE, planted_between(2, 40));
    for (size_t left = planted_between(3, 20); left > 0; left--) {
        struct node *node = planted_lost(sizeof *node, DIRECT, planted_group());
        node->own = node;
    }
    for (size_t left = planted_between(3, 20); left > 0; left--) {
        uint64_t group = planted_group();
        struct node *head = planted_lost(sizeof *head, DIRECT, group);
        head->next = circle(group, INDIRECT, planted_between(2, 9));
    }
    struct node *one = planted_block(sizeof *one), *other = planted_block(sizeof *other);
    one->next = other;
    other->next = one;
    held = one;
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
