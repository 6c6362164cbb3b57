/* A program that counts what it asks of its allocator, in its own way, and says so as JSON when it ends; some blocks are
   left in use. It makes no other calls of malloc, and none for no bytes.

   tallies SEED CALLS */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 700 };

struct slot { char *block; size_t size; long born; };

static struct slot slots[SLOTS];
static uint64_t state;
static long call, counts[5], blocks, bytes, most_bytes, most_call, most_blocks, upper, lower, usable, zero, moved;
static long released, *lives;

static uint32_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static size_t a_size(void) {
    uint32_t kind = next() % 1000;
    return 1 + (kind < 3 ? next() % 3000000 : kind < 50 ? next() % 90000 : next() % 700);
}

static void had(struct slot *slot, size_t size) {
    upper += size;
    usable += malloc_usable_size(slot->block);
    bytes += size - slot->size;
    if (size > slot->size) lower += size - slot->size;
    slot->size = size;
    if (bytes > most_bytes) most_bytes = bytes, most_call = call;
    if (blocks > most_blocks) most_blocks = blocks;
}

static void gone(struct slot *slot) {
    long between = call - slot->born - 1;
    zero += between == 0;
    lives[released++] = between;
    blocks -= 1;
    bytes -= slot->size;
    *slot = (struct slot){0};
}

/* The smallest life that so many of them are not longer than: qsort may allocate. */
static long reached(long wanted) {
    long low = 0, high = call;
    while (low < high) {
        long middle = (low + high) / 2, count = 0;
        for (long number = 0; number < released; number++) count += lives[number] <= middle;
        if (count >= wanted) high = middle;
        else low = middle + 1;
    }
    return low;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    state = atol(argv[1]);
    long wanted = atol(argv[2]);
    lives = mmap(NULL, (wanted + 1) * sizeof *lives, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct slot *slot = slots;
    while (call < wanted) {
        /* Often the one before again. */
        if (next() % 4) slot = &slots[next() % SLOTS];
        uint32_t what = next() % 12;
        size_t size = a_size();
        call += 1;
        if (slot->block && what < 7) {
            counts[4] += 1;
            free(slot->block);
            gone(slot);
        } else if (slot->block || what == 7) {
            counts[2] += 1;
            char *old = slot->block;
            volatile uintptr_t before = (uintptr_t)old;
            if (!old) slot->born = call, blocks += 1;
            slot->block = realloc(old, size);
            moved += before && before != (uintptr_t)slot->block;
            had(slot, size);
        } else {
            int kind = what < 9 ? 0 : what < 11 ? 1 : 3;
            counts[kind] += 1;
            slot->born = call;
            blocks += 1;
            slot->block = kind == 0 ? malloc(size) : kind == 1 ? calloc(1, size) : memalign(64u << next() % 5, size);
            had(slot, size);
        }
    }
    char text[1000];
    int length = snprintf(
        text, sizeof text,
        "{\"malloc\": %ld, \"calloc\": %ld, \"realloc\": %ld, \"memalign\": %ld, \"free\": %ld, \"blocks\": %ld, "
        "\"bytes\": %ld, \"most_bytes\": %ld, \"most_call\": %ld, \"most_blocks\": %ld, \"upper\": %ld, \"lower\": %ld, "
        "\"usable\": %ld, \"zero\": %ld, \"moved\": %ld, \"released\": %ld, \"half\": %ld, "
        "\"ninety\": %ld}\n",
        counts[0], counts[1], counts[2], counts[3], counts[4], blocks, bytes, most_bytes, most_call, most_blocks, upper,
        lower, usable, zero, moved, released,
        reached((released + 1) / 2), reached((9 * released + 9) / 10));
    return write(1, text, length) == length ? 0 : 3;
}
