/* Hold blocks that are not all in memory: untouched. A global has a large one that was never written to, many that were
   written to half, and one of which each page was; another large one was never written to and is lost. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 256 << 20, WRITTEN = 12 << 20, PART = 64 << 10, PARTS = 200 };

struct {
    char *large, *written, *halves[PARTS];
} kept;

static __attribute__((noinline)) void lose(void) {
    char *volatile lost = calloc(1, LARGE);
    lost = NULL;
    (void)lost;
}

int main(void) {
    lose();
    kept.large = calloc(1, LARGE);
    kept.written = malloc(WRITTEN);
    memset(kept.written, 1, WRITTEN);
    for (int number = 0; number < PARTS; number++) {
        kept.halves[number] = malloc(PART);
        memset(kept.halves[number], 1, PART / 2);
    }
    char byte;
    return read(0, &byte, 1) < 0;
}
