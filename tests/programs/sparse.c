/* sparse SEED COUNT ONE_IN STEP
 *
 * COUNT blocks of random sizes up to 3,000 bytes, multiples of STEP, by whatever malloc() is here; then all but one in ONE_IN, by chance, are
 * freed. Then it reads standard input: a line with "move" copies what is left into new blocks, all of it before the first old
 * block is freed, and gives back what is empty then: where jemalloc's mallctl() is, by flushing the thread's cache and purging all
 * arenas, where tcmalloc's extension is, by giving up the thread's cache and releasing free memory, where mimalloc's mi_collect() is,
 * by that; "purge" does only that.
 */
#include "target.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <sys/prctl.h>

#define LARGEST 3000

struct block { char *pointer; size_t size; };

static struct block *blocks;
static size_t count;

static void purge(void)
{
    int (*control)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    void (*collect)(bool) = dlsym(RTLD_DEFAULT, "mi_collect");
    void (*idle)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_MarkThreadIdle");
    void (*release)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    if (idle != NULL && release != NULL) {
        idle();
        release();
    }
    if (control != NULL) {
        control("thread.tcache.flush", NULL, NULL, NULL, 0);
        control("arena.4096.purge", NULL, NULL, NULL, 0);
    }
    if (collect != NULL)
        collect(true);
}

static void move(void)
{
    char **moved = pages(count * sizeof *moved);
    for (size_t i = 0; i < count; i++)
        if (blocks[i].pointer != NULL) {
            moved[i] = malloc(blocks[i].size);
            memcpy(moved[i], blocks[i].pointer, blocks[i].size);
        }
    for (size_t i = 0; i < count; i++) {
        free(blocks[i].pointer);
        blocks[i].pointer = moved[i];
    }
    munmap(moved, count * sizeof *moved);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    /* What huge pages make resident beside what was touched is another matter. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    uint64_t random = seeded(strtoull(argv[1], NULL, 10));
    count = strtoull(argv[2], NULL, 10);
    uint64_t one_in = strtoull(argv[3], NULL, 10), step = strtoull(argv[4], NULL, 10);
    blocks = pages(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        size_t size = step * between(&random, 1, LARGEST / step);
        blocks[i] = (struct block){memset(malloc(size), 0xA5, size), size};
    }
    for (size_t i = 0; i < count; i++)
        if (draw(&random) % one_in != 0) {
            free(blocks[i].pointer);
            blocks[i].pointer = NULL;
        }
    char line[64];
    for (;;) {
        ssize_t got = read(0, line, sizeof line - 1);
        if (got <= 0)
            park();
        line[got] = 0;
        if (strncmp(line, "move", 4) == 0)
            move();
        purge();
    }
}
