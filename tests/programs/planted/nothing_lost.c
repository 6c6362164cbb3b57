/* nothing_lost SEED TABLE: a table of lists, blocks that grew, blocks that were given back, and nothing lost. */
#include "planted.h"
#include <stdlib.h>

struct node { struct node *next; char data[]; };

struct node *table[64];

static void plant(void)
{
    for (size_t left = planted_between(100, 5000); left > 0; left--) {
        struct node **place = &table[planted_between(0, 63)];
        if (*place != 0 && planted_between(0, 2) == 0) {
            struct node *gone = *place;
            *place = gone->next;
            free(gone);
            continue;
        }
        struct node *node = planted_block(sizeof *node + planted_between(0, 900));
        node = realloc(node, sizeof *node + planted_between(0, 900));
        node->next = *place;
        *place = node;
    }
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    for (size_t left = planted_between(1, 4); left > 0; left--)
        planted_apart(plant);
    return planted_end();
}
