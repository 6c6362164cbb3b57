/* pointing SEED COUNT WAY TABLE: COUNT blocks that are kept, and as many of the same size that are lost. The table has a line
   for each, "kept ADDRESS" or "lost ADDRESS". WAY says where the kept ones' addresses are:
     list      in the last member of the one before, each the address of a last member
     table     in one block, the addresses of last members
     shared    in shared anonymous memory
     memfd     in a file in memory
     far       in shared memory of which nearly nothing was touched
     boxed     in one block, in the bits that a NaN leaves free
     counted   in one block, each with a small number in the upper bits
   Between them lie blocks that were freed, and used again without being written in half of the runs. */
#include "target.h"

enum { SPARE = 2048 };

static char lines[8 << 20];
static size_t used;
static uint64_t *volatile root;
static void *volatile spare[SPARE];

static void note(const char *kind, void *block)
{
    used += (size_t)sprintf(lines + used, "%s %lu\n", kind, (unsigned long)(uintptr_t)block);
}

static uint64_t *table_of(const char *way, size_t count)
{
    size_t size = count * sizeof *root, far = (size_t)1 << 30;
    if (!strcmp(way, "shared"))
        return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(way, "far")) {
        char *memory = mmap(NULL, far, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return (uint64_t *)(memory + far / 2);
    }
    if (!strcmp(way, "memfd")) {
        int file = memfd_create("table", 0);
        if (ftruncate(file, (off_t)size) != 0)
            abort();
        return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    return malloc(size);
}

int main(int argc, char **words)
{
    (void)argc;
    uint64_t state = seeded(strtoull(words[1], NULL, 10));
    size_t count = strtoull(words[2], NULL, 10);
    const char *way = words[3];
    /* malloc gives so many bytes as were asked for: the last member overlaps the next chunk's header. */
    size_t size = 16 * between(&state, 8, 60) + 8;
    int is_list = !strcmp(way, "list"), is_last = is_list || !strcmp(way, "table");
    uint64_t *table = table_of(way, count);
    root = table;
    for (size_t place = 0; place < 2 * count; place++) {
        char *block = malloc(size);
        memset(block, 1, size);
        if (place % 2) {
            note("lost", block);
        } else {
            uint64_t address = (uint64_t)(uintptr_t)block, *last = (uint64_t *)(block + size - 8);
            note("kept", block);
            if (!strcmp(way, "boxed"))
                address |= (uint64_t)0x7ffc << 48;
            if (!strcmp(way, "counted"))
                address |= (place % 0xff + 1) << 48;
            if (is_list)
                *last = (uint64_t)(uintptr_t)root, root = last;
            else
                table[place / 2] = is_last ? (uint64_t)(uintptr_t)last : address;
            if (is_list && *last == (uint64_t)(uintptr_t)table)
                *last = 0;
        }
        if (between(&state, 0, 1) && place < SPARE)
            spare[place] = malloc(2000);
    }
    for (size_t place = 0; place < SPARE; place += 2)
        free(spare[place]), spare[place] = NULL;
    for (size_t place = draw(&state) % 2 ? 0 : SPARE; place < SPARE; place += 2)
        spare[place] = malloc(2000);
    if (is_list)
        free(table);
    write_file(words[4], lines, used);
    memset(lines, 0, used);
    park();
}
