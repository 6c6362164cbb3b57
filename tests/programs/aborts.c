/* aborts HOW SEED FILE
 *
 * Waits for a line on standard input; then it misuses malloc, which ends it by abort(). FILE gets the address of the
 * block that is to blame, 8 bytes, to which `kept_here` points. HOW: "top" writes beyond the last block, "next" beyond a
 * block before another one, "twice" frees a small block twice, "large" a large one.
 */
#include "target.h"

#define BLOCKS 40

char *volatile kept_here;
static char *volatile blocks[BLOCKS];

__attribute__((noinline)) void give_away(char *block)
{
    free(block);
    __asm__ volatile("" ::: "memory");
}

static void write_beyond(char *block, size_t size)
{
    static const char text[] = "a label that is too long for it ";
    for (size_t i = 0; i < size; i++)
        block[i] = text[i % (sizeof text - 1)];
    /* The size of the next chunk gets the flags of one in the main arena. */
    block[size - 8] = 'a';
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *how = argv[1];
    uint64_t random = seeded(strtoull(argv[2], NULL, 10));
    int is_large = strcmp(how, "large") == 0;
    char line;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(is_large ? between(&random, 2000, 4000) : between(&random, 40, 400));
        memset(blocks[i], 'a' + i % 26, 40);
    }
    int last = strcmp(how, "top") == 0 ? BLOCKS - 1 : (int)between(&random, 5, BLOCKS - 5);
    kept_here = blocks[last];
    uint64_t address = (uint64_t)kept_here;
    write_file(argv[3], &address, sizeof address);
    if (read(0, &line, 1) != 1)
        return 1;
    size_t room = malloc_usable_size(kept_here);
    if (strcmp(how, "top") == 0) {
        write_beyond(kept_here, room + 8);
        return malloc(1 << 17 >> 1) == NULL || malloc(1 << 16) == NULL;
    }
    if (strcmp(how, "next") == 0) {
        write_beyond(kept_here, room + 8);
        give_away(blocks[last + 1]);
    } else {
        give_away(kept_here);
        give_away(kept_here);
    }
    return 3;
}
