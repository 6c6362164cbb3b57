/* claims NUMBER [WORD]: calls malloc, and then writes the number into a word of its recorder's header: the one that
   counts the stages that were begun, or another. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The word of the header that counts them; no honest program of this size has begun a hundred. */
enum { BEGUN = 5, MANY = 100 };

static void allocate(void) {
    for (int i = 0; i < 1000; i++) {
        char *volatile block = malloc(i + 1);
        free(block);
    }
}

int main(int count, char **words) {
    allocate();
    char line[4096];
    uint64_t start, end;
    volatile uint64_t *header = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!header && fgets(line, sizeof line, maps))
        if (strstr(line, ".calls") && sscanf(line, "%lx-%lx", &start, &end) == 2 && ((uint64_t *)start)[BEGUN] < MANY)
            header = (uint64_t *)start;
    fclose(maps);
    if (!header) return 3;
    header[count > 2 ? atoi(words[2]) : BEGUN] = strtoull(words[1], 0, 0);
    allocate();
    return 0;
}
