/* one_chain NODES HOLES SIZE: a list of NODES nodes from one variable, and HOLES more that pin free blocks and have blocks
 * of SIZE bytes. */
#include "target.h"

struct node {
    struct node *next;
    void *data;
    char rest[16];
};
struct node *volatile first;

static struct node *added(struct node *last)
{
    struct node *node = calloc(1, sizeof *node);
    if (last == NULL)
        first = node;
    else
        last->next = node;
    return node;
}

int main(int count, char **arguments)
{
    long nodes = atol(arguments[1]), holes = atol(arguments[2]), size = atol(arguments[3]);
    void **free_later = calloc(holes, sizeof *free_later);
    struct node *last = NULL;
    while (nodes-- > 0)
        last = added(last);
    for (long hole = 0; hole < holes; hole++) {
        free_later[hole] = memset(malloc(8000), 1, 8000);
        last = added(last);
        last->data = calloc(1, size);
    }
    for (long hole = 0; hole < holes; hole++)
        free(free_later[hole]);
    free(free_later);
    pause();
    return count;
}
