/* A program that looks like one of Rust's: false_rust KIND SIZE COUNT. KIND: `tree` (a root of a BTreeMap with two children of
SIZE bytes, which agree at very many places, and COUNT words that lead to it), or `items` (a block of SIZE bytes with COUNT
words that look like a Vec of it), or `words` (COUNT pairs of words that look like a Vec of blocks of SIZE bytes). Prints nothing; waits for standard input. */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char mark[] = "/rustc/0123456789abcdef0123456789abcdef01234567/library/std/src/rt.rs";
static void *kept[2];

static void *tree(size_t size, long count) {
    char *root = calloc(1, size + 96), *left = calloc(1, size), *right = calloc(1, size);
    ((void **)(root + size))[0] = left;
    ((void **)(root + size))[1] = right;
    size_t half = size / 2 & ~(size_t)7;
    for (size_t at = 0; at < half; at += 8) *(void **)(left + at) = *(void **)(right + at) = root;
    for (size_t at = half; at < size; at += 2) *(uint16_t *)(right + at) = 1;
    void **roots = calloc(count, 64);
    for (long at = 0; at < count; at++) {
        roots[8 * at + 1] = root;
        roots[8 * at + 2] = (void *)1;
        roots[8 * at + 3] = (void *)5;
    }
    return roots;
}

static void *items(size_t size, long count) {
    uint64_t *block = malloc(size), *holders = calloc(count, 24);
    for (size_t at = 0; at < size / 8; at++) block[at] = 0x8080808080808081;
    for (long at = 0; at < count; at++) {
        holders[3 * at] = size / 8;
        holders[3 * at + 1] = (uint64_t)block;
        holders[3 * at + 2] = size / 8 - 1 - at % 7;
    }
    return holders;
}

static void *words(size_t size, long count) {
    void *blocks[1000];
    for (int at = 0; at < 1000; at++) blocks[at] = malloc(size);
    uint64_t *pairs = malloc(count * 16);
    for (long at = 0; at < count; at++) {
        pairs[2 * at] = 4;
        pairs[2 * at + 1] = (uint64_t)blocks[at % 1000];
    }
    return pairs;
}

int main(int count, char **arguments) {
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    size_t size = count > 3 ? strtoul(arguments[2], 0, 10) : 0;
    void *(*make)(size_t, long) = !strcmp(arguments[1], "tree") ? tree : !strcmp(arguments[1], "items") ? items : words;
    kept[0] = make(size, atol(arguments[3]));
    kept[1] = (void *)mark;
    char byte;
    return read(0, &byte, 1) < 0;
}
