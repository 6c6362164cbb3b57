/* linked COUNT EVERY BUFFER
 *
 * A list of COUNT nodes that `head` begins; `places` has every EVERY-th of them, too. Where BUFFER is not 0, a block of that
 * many bytes was in front of each node, and has been freed. Writes nothing, and rests.
 */
#include "target.h"

#define PLACES 1000

struct node {
    struct node *next;
    char data[72];
};

struct node *head, *places[PLACES];

static void add(size_t number, size_t every)
{
    struct node *node = malloc(sizeof *node);
    memset(node->data, 'x', sizeof node->data);
    node->next = head;
    head = node;
    if (every && number % every == 0 && number / every < PLACES)
        places[number / every] = node;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t count = strtoull(argv[1], NULL, 10), every = strtoull(argv[2], NULL, 10), size = strtoull(argv[3], NULL, 10);
    char **buffers = pages(count * sizeof *buffers);
    for (size_t number = 0; number < count; number++) {
        if (size)
            buffers[number] = memset(malloc(size), 1, size);
        add(number, every);
    }
    for (size_t number = 0; number < count; number++)
        free(buffers[number]);
    memset(buffers, 0, count * sizeof *buffers);
    park();
}
