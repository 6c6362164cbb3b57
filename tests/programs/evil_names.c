/* evil_names NAME [exit]
 *
 * A global points to blocks, the largest of a MiB; a thread is called NAME, and the program, too. It rests, or ends. The
 * address of a block is on standard error.
 */
#include "target.h"
#include <sys/prctl.h>

struct node { struct node *next; char text[4000]; };
struct node *evil_list;
void *evil_large;
static const char *name;
static pthread_barrier_t ready;

static void *rest(void *unused)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return unused;
}

int main(int count, char **words)
{
    pthread_t thread;
    name = count > 1 ? words[1] : "evil";
    for (int i = 0; i < 600; i++) {
        struct node *node = malloc(sizeof *node);
        memset(node, 'x', sizeof *node);
        node->next = evil_list;
        evil_list = node;
    }
    evil_large = malloc(1 << 20);
    memset(evil_large, 1, 1 << 20);
    if (count > 2)
        return 0;
    pthread_barrier_init(&ready, NULL, 2);
    if (pthread_create(&thread, NULL, rest, NULL) != 0)
        return 1;
    pthread_barrier_wait(&ready);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    fprintf(stderr, "%p\n", (void *)evil_list);
    park();
}
