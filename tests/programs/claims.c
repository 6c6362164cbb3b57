/* claims STAGES: calls malloc, and then writes into the header of its recorder that it has begun so many stages. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 5 };

int main(int count, char **words) {
    (void)count;
    for (int i = 0; i < 1000; i++) free(malloc(i + 1));
    char line[4096];
    uint64_t found = 0, start, end;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!found && fgets(line, sizeof line, maps))
        if (strstr(line, ".calls") && sscanf(line, "%lx-%lx", &start, &end) == 2) found = start;
    fclose(maps);
    if (!found) return 3;
    ((volatile uint64_t *)found)[STAGES] = strtoull(words[1], 0, 0);
    return 0;
}
