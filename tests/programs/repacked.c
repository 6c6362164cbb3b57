/* repacked SIZE COUNT ONE_IN
 *
 * COUNT blocks of SIZE bytes by whatever malloc() is here; all but each ONE_IN-th are freed, then the thread's cache is
 * emptied and tcmalloc gives back what is free. It reads a line, copies all that is left before the first old block is freed, does the same again, and waits.
 */
#include "target.h"
#include <dlfcn.h>

static void give_back(void)
{
    void (*idle)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_MarkThreadIdle");
    void (*release)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    if (idle != NULL && release != NULL) {
        idle();
        release();
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t size = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10), one_in = strtoull(argv[3], NULL, 10);
    char **blocks = pages(2 * count * sizeof *blocks), **copies = blocks + count;
    for (size_t i = 0; i < count; i++)
        blocks[i] = memset(malloc(size), 1, size);
    for (size_t i = 0; i < count; i++)
        if (i % one_in != 0)
            free(blocks[i]);
    memset(copies, 0, count * sizeof *copies);
    give_back();
    char line[8];
    if (read(0, line, sizeof line) <= 0)
        return 0;
    for (size_t i = 0; i < count; i += one_in)
        copies[i] = memcpy(malloc(size), blocks[i], size);
    for (size_t i = 0; i < count; i += one_in)
        free(blocks[i]);
    give_back();
    if (read(0, line, sizeof line) > 0)
        park();
    return 0;
}
