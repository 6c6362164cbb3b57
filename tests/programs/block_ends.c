/* block_ends SEED TRUTH: writes [[address, size], ...] of blocks of random sizes, and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 400, ALL = 460 };

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    srand((unsigned)strtoul(argv[1], NULL, 10));
    FILE *truth = fopen(argv[2], "w");
    if (truth == NULL)
        return 3;
    for (int number = 0; number < ALL; number++) {
        size_t size = 1 + (number < SMALL ? (size_t)rand() % 600 : (size_t)rand() % (4u << 20));
        char *block = malloc(size);
        if (block == NULL)
            return 4;
        memset(block, 1, size);
        fprintf(truth, "%s[%llu, %zu]", number ? ", " : "[", (unsigned long long)(size_t)block, size);
    }
    fputs("]", truth);
    fclose(truth);
    char byte;
    return read(0, &byte, 1) < 0;
}
