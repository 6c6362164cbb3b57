/*
 * lost_sizes SIZE COUNT
 *
 * Allocates COUNT blocks of SIZE bytes with malloc(), writes to them, keeps no pointer to them, and rests.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __attribute__((noinline)) void lose(size_t size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *block = malloc(size);
        memset(block, 'A', size);
        __asm__ volatile("" : : "r"(block) : "memory");
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    lose(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
    pause();
}
