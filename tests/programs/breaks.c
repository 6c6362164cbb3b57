// Memory that the program takes from sbrk() itself, between two parts of malloc's, with the only pointers to some blocks:
// breaks BYTES COUNT. Prints how many bytes these blocks have.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL 1000
#define BLOCK 20000
#define MOST 1000

static void *kept[MOST];

int main(int count, char **arguments) {
    if (count < 3) return 1;
    long size = atol(arguments[1]), left = atol(arguments[2]);
    for (int place = 0; place < 200; place++) kept[place] = malloc(SMALL);
    char *own = sbrk(size);
    if (own == (void *)-1) return 1;
    memset(own, 1, size);
    void *volatile *table = (void **)(((size_t)own + 15) & ~(size_t)15);
    // The second part of malloc's begins behind what is the program's.
    for (int place = 200; place < 400; place++) kept[place] = malloc(SMALL);
    for (long place = 0; place < left; place++) {
        table[place] = malloc(BLOCK);
        memset(table[place], 2, BLOCK);
    }
    fprintf(stderr, "%ld\n", left * BLOCK);
    char byte;
    return read(0, &byte, 1) < 0;
}
