/* random_c_graph SEED BLOCKS INSIDE TRUTH
 *
 * Blocks of random sizes with random pointers between them, INSIDE of ten into the middle, and a table in static data
 * that has a few of them. TRUTH is u64 each: the number of blocks; for each its ~address, the bytes of its chunk, and
 * whether the table has it; the number of edges; for each the block that has the word, where in it, the block that it
 * leads to and how far into that.
 *
 * Mostly trees, so that there is something to retain; some blocks are reached by nothing.
 */
#include "target.h"

enum { LARGEST = 600, ROOTS = 64, NEAR = 16 };

#define EMPTY ((char *)0x9191919191919191)

struct edge { uint64_t source, place, target, inside; };

char *random_c_graph_roots[ROOTS];

static uint64_t random_state;
static size_t count, tenths, edges, roots;
static char **blocks;
static uint32_t *sizes;
static uint8_t *is_root;
static struct edge *drawn;
static const char *path;

/* A block's own address, in it, is a sign that something begins there, right behind it, or a few words before it, as with
 * pages of SQLite and what was aligned by hand: a word that leads there is not a stray one. */
static int is_sign(const struct edge *sign, const struct edge *edge)
{
    return sign->source == sign->target && edge->target == sign->target && edge->inside != 0 &&
           edge->inside <= sign->place + 8 && sign->place <= edge->inside + 8 * NEAR;
}

static void connect(size_t source, size_t target)
{
    /* Not in the last words: in them, behind what was asked for, something may be left over, and a chain avoids them. */
    size_t words = sizes[source] < 24 ? 0 : (sizes[source] - 16) / 8, inside = 0;
    if (words == 0)
        return;
    /* Not into the last 8 bytes: an address there may be that of the next chunk, as malloc itself has it. */
    if (between(&random_state, 0, 9) < tenths && sizes[target] > 8)
        inside = between(&random_state, 0, sizes[target] - 9);
    struct edge edge = { source, 8 * between(&random_state, 0, words - 1), target, inside };
    char **word = (char **)(blocks[source] + edge.place);
    /* A word that is one already stays. */
    if (*word != EMPTY || is_sign(&edge, &edge))
        return;
    for (size_t i = 0; i < edges; i++)
        if (is_sign(&drawn[i], &edge) || is_sign(&edge, &drawn[i]))
            return;
    *word = blocks[target] + inside;
    drawn[edges++] = edge;
}

static void root(size_t block)
{
    if (roots == ROOTS || is_root[block])
        return;
    random_c_graph_roots[roots++] = blocks[block];
    is_root[block] = 1;
}

static void draw_graph(void)
{
    for (size_t i = 0; i < count; i++) {
        sizes[i] = (uint32_t)between(&random_state, 1, LARGEST);
        if ((blocks[i] = malloc(sizes[i])) == NULL)
            abort();
        /* No address, and no count of anything either; also behind what was asked for. */
        memset(blocks[i], 0x91, malloc_usable_size(blocks[i]));
        if (i > 0 && between(&random_state, 0, 19) != 0)
            connect(i - 1 - between(&random_state, 0, i - 1 < 20 ? i - 1 : 20), i);
    }
    for (size_t left = between(&random_state, 0, count); left > 0; left--)
        connect(between(&random_state, 0, count - 1), between(&random_state, 0, count - 1));
    root(0);
    for (size_t left = between(&random_state, 0, ROOTS - 1); left > 0; left--)
        root(between(&random_state, 0, count - 1));
}

static void put(int file, uint64_t word) { write_all(file, &word, sizeof word); }

static void tell(void)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        abort();
    put(file, count);
    for (size_t i = 0; i < count; i++) {
        put(file, ~(uint64_t)blocks[i]);
        put(file, ((uint64_t *)blocks[i])[-1] & ~(uint64_t)7);
        put(file, is_root[i]);
    }
    put(file, edges);
    write_all(file, drawn, edges * sizeof *drawn);
    close(file);
}

/* What is known of the blocks lies in memory of its own, which is given back: no pointer stays there. */
static void *all(void *unused)
{
    blocks = pages(count * sizeof *blocks);
    sizes = pages(count * sizeof *sizes);
    is_root = pages(count);
    drawn = pages(2 * count * sizeof *drawn);
    draw_graph();
    tell();
    munmap(blocks, count * sizeof *blocks);
    munmap(sizes, count * sizeof *sizes);
    munmap(is_root, count);
    munmap(drawn, 2 * count * sizeof *drawn);
    blocks = NULL;
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    count = strtoull(argv[2], NULL, 10);
    tenths = strtoull(argv[3], NULL, 10);
    path = argv[4];
    mallopt(M_ARENA_MAX, (int)between(&random_state, 1, 2));
    size_t size = 1 << 20;
    void *stack = pages(size);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, size) || pthread_create(&thread, &attributes, all, NULL))
        abort();
    pthread_join(thread, NULL);
    munmap(stack, size);
    char byte;
    return read(0, &byte, 1) < 0;
}
