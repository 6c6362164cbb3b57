/* keeper SEED COUNT: map COUNT regions of memory between guards, touch all of them, keep addresses of every second one in
 * static data, and write "address size kept" of each on standard error. Then pause.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define MOST 64

static char *kept[MOST];

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    int count = argc > 2 ? atoi(argv[2]) : 8;

    for (int i = 0; i < count && i < MOST; i++) {
        size_t size = (64 + rand_r(&seed) % 1000) * PAGE;
        char *at = mmap(NULL, size + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || mprotect(at, PAGE, PROT_NONE) || mprotect(at + PAGE + size, PAGE, PROT_NONE))
            return 1;
        memset(at + PAGE, 1, size);
        if (i % 2)
            kept[i] = at + PAGE + rand_r(&seed) % size;
        fprintf(stderr, "%p %zu %d\n", (void *)(at + PAGE), size, i % 2);
    }
    free(malloc(100));
    pause();
    return kept[0] != NULL;
}
