/* held SEED COUNT LARGEST WHERE
 *
 * Pages in every state: COUNT blocks, of which some were written and some not; memory that was only read, so that the
 * kernel's zero page stands there; huge pages where they are to be had (MADV_HUGEPAGE); a forked child. Then it pauses.
 * WHERE, added up: 1 zero pages, 2 huge pages, 4 a child that has written some of the pages that it was given, 8 the
 * parent has.
 */
#include "target.h"

#include <sys/prctl.h>

#define HUGE (2 << 20)

static uint64_t random_state;
static int where;

static char *anonymous(size_t size)
{
    return pages(size);
}

static void look(const char *from, size_t size)
{
    volatile char seen = 0;
    for (size_t at = 0; at < size; at += 4096)
        if (draw(&random_state) % 3)
            seen = seen + from[at];
}

static void write_some(char *to, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        if (draw(&random_state) % 3 == 0)
            to[at] = 1;
}

/* The first half of an aligned stretch is written, one huge page is read only, and one is written and half given back. */
static void make_huge(void)
{
    char *from = anonymous(8 * HUGE);
    char *aligned = (char *)(((uintptr_t)from + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    madvise(aligned, 6 * HUGE, MADV_HUGEPAGE);
    memset(aligned, 1, 3 * HUGE);
    look(aligned + 4 * HUGE, 1);
    madvise(aligned, 6 * HUGE, MADV_NOHUGEPAGE); /* what is huge stays so, and nobody makes more of it in the background */
    madvise(aligned + 4096 * between(&random_state, 1, 200), 4096 * between(&random_state, 1, 100), MADV_DONTNEED);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    size_t count = strtoull(argv[2], NULL, 10), largest = strtoull(argv[3], NULL, 10);
    where = atoi(argv[4]);
    char **blocks = pages(count * sizeof *blocks);
    size_t *sizes = pages(count * sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        sizes[i] = between(&random_state, 1, largest);
        blocks[i] = draw(&random_state) % 2 ? malloc(sizes[i]) : calloc(1, sizes[i]);
        if (draw(&random_state) % 4)
            write_some(blocks[i], sizes[i]);
        else if (where & 1)
            look(blocks[i], sizes[i]);
    }
    if (where & 1)
        look(anonymous(16 << 20), 16 << 20);
    if (where & 2)
        make_huge();
    for (size_t i = 0; i < count; i++)
        if (draw(&random_state) % 2) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    if (where & (4 | 8)) {
        volatile int *written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int is_child = fork() == 0;
        if (is_child)
            prctl(PR_SET_PDEATHSIG, 9);
        for (size_t i = 0; where & (is_child ? 4 : 8) && i < count; i++)
            if (blocks[i] != NULL)
                write_some(blocks[i], sizes[i]);
        if (is_child)
            *written = 1;
        while (!*written)
            usleep(1000);
    }
    park();
}
