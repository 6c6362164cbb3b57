/* keeps_marbles COUNT SIZE. COUNT blocks, SIZE bytes each, in a chain whose beginning only a masked word leads to; prints
   where it begins, then rests. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MARBLE 0x5EED0FA11AB1E5
#define MASK 0x5A5A5A5A5A5A5A5A

static uintptr_t kept = MASK;

int main(int count, char **words) {
    if (count < 3)
        return 2;
    for (int left = atoi(words[1]); left > 0; left--) {
        uintptr_t *block = calloc(1, (size_t)atoi(words[2]));
        block[0] = MARBLE;
        block[1] = kept ^ MASK;
        kept = (uintptr_t)block ^ MASK;
    }
    fprintf(stderr, "%#lx\n", (unsigned long)(kept ^ MASK));
    char byte;
    return read(0, &byte, 1) < 0;
}
