/* hangs SEED LOST: hangs blocks on one global, and loses others; at a line on standard input it frees what hangs there.
   It prints the chunks' bytes of both. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session { struct session *next; char name[60]; };

struct session *volatile sessions;
static uint64_t state;

static uint32_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static size_t chunk(void *block) { return malloc_usable_size(block) + 8; }

__attribute__((noinline)) static size_t hang(unsigned count) {
    size_t bytes = 0;
    while (count--) {
        struct session *made = calloc(1, sizeof *made);
        made->next = sessions;
        sessions = made;
        bytes += chunk(made);
    }
    return bytes;
}

__attribute__((noinline)) static size_t lose(unsigned count) {
    size_t bytes = 0;
    while (count--) {
        void **volatile head = calloc(1, 16 + next() % 2000), **volatile tail = calloc(1, 16 + next() % 200);
        *head = tail;
        bytes += chunk((void *)head) + chunk((void *)tail);
    }
    return bytes;
}

__attribute__((noinline)) static void wipe(void) {
    volatile char stack[16384];
    for (size_t place = 0; place < sizeof stack; place++) stack[place] = 0;
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int loses = argc > 2 && atoi(argv[2]);
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stderr, NULL, _IONBF, 0);
    size_t hung = hang(loses ? 2000 + next() % 1000 : 80000 + next() % 50000);
    size_t lost = loses ? lose(8000 + next() % 4000) : 0;
    wipe();
    fprintf(stderr, "%zu %zu\n", hung, lost);
    getchar();
    while (sessions) {
        struct session *gone = sessions;
        sessions = gone->next;
        free(gone);
    }
    getchar();
    return 0;
}
