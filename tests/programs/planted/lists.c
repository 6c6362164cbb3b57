/* lists SEED TABLE: singly and doubly linked lists that nobody holds, rings, and one list that is held. */
#include "planted.h"

struct node { struct node *next; char data[]; };
struct both { struct both *next, *before; char *text; };

struct node *held;

static struct node *list(int is_lost)
{
    uint64_t group = planted_group();
    struct node *head = 0;
    size_t count = planted_between(1, 60);
    for (size_t left = count; left > 0; left--) {
        size_t size = sizeof(struct node) + planted_between(0, 300);
        struct node *node = is_lost ? planted_lost(size, left == 1 ? DIRECT : INDIRECT, group) : planted_block(size);
        node->next = head;
        head = node;
    }
    return head;
}

static void ring(void)
{
    uint64_t group = planted_group();
    struct both *first = 0, *last = 0;
    for (size_t left = planted_between(2, 30); left > 0; left--) {
        struct both *node = planted_lost(sizeof *node, CYCLE, group);
        size_t size = planted_between(1, 500);
        node->text = planted_lost(size, INDIRECT, group);
        if (first == 0)
            first = last = node;
        node->before = last;
        node->next = first;
        last->next = node;
        first->before = node;
        last = node;
    }
}

static void plant(void)
{
    for (size_t left = planted_between(3, 12); left > 0; left--)
        list(1);
    for (size_t left = planted_between(3, 8); left > 0; left--)
        ring();
    held = list(0);
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
