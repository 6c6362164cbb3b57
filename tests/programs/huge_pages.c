/* huge_pages COUNT MODE
 *
 * A mapping of COUNT huge pages of 2 MiB, for which huge pages are asked. MODE "sparse": one page of each is written;
 * "whole": all of it; "zeros": all of it with zeros; "lazy": all of it, and all but the first quarter is given back with
 * MADV_FREE, without huge pages. Then it waits.
 */
#include "target.h"

#define HUGE (2UL << 20)

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    /* A heap that is there. */
    void *block = malloc(100);
    if (block == NULL)
        return 1;
    size_t count = strtoull(argv[1], NULL, 10), size = count * HUGE;
    char *all = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 1;
    all = (char *)(((uintptr_t)all + HUGE - 1) & ~(HUGE - 1));
    madvise(all, size, strcmp(argv[2], "lazy") == 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    if (strcmp(argv[2], "sparse") == 0)
        for (size_t i = 0; i < count; i++)
            memset(all + i * HUGE, 'a', 4096);
    else
        memset(all, strcmp(argv[2], "zeros") == 0 ? 0 : 'a', size);
    if (strcmp(argv[2], "lazy") == 0)
        madvise(all + size / 4, size - size / 4, MADV_FREE);
    park();
}
