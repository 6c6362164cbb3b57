// An allocator of its own that maps pieces with guard pages between, each linked to the next: apart COUNT.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE (1 << 20)
#define PAGE 4096

struct piece {
    struct piece *next;
    char data[PIECE - sizeof(struct piece *)];
};

struct piece *pieces;

int main(int count, char **arguments) {
    if (count < 2) return 1;
    for (int left = atoi(arguments[1]); left > 0; left--) {
        struct piece *one = mmap(NULL, PIECE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (one == MAP_FAILED || mprotect((char *)one + PIECE, PAGE, PROT_NONE)) return 1;
        memset(one->data, 1, sizeof one->data);
        one->next = pieces;
        pieces = one;
    }
    // malloc is called, so that this memory is known not to be its own.
    if (malloc(1000) == NULL) return 1;
    char byte;
    return read(0, &byte, 1) < 0;
}
