/* Stands for a PostgreSQL 17 backend with contexts of its own making: "postgres KIND SIZE FREE". KIND: "slab" of one block of
   SIZE bytes with FREE chunks of one byte; "set" whose block ends SIZE bytes behind the context, FREE of them free; "empty":
   a slab that counts SIZE empty blocks of 4 KiB and lists one; "twice": a child with a block of SIZE bytes that lies in
   its parent's; "link": a block at the address SIZE; "bare": a set without a block; "many": a set with SIZE children, whose
   idents are FREE bytes, all the same text if FREE is even. Each counts (mem_allocated) what its fields add up to. Prints that,
   with the context itself. */
#include "target.h"

typedef uint64_t word;
enum { SET = 200, SLAB = 176, PAGE_SIZE = 4096 };
void *TopMemoryContext;

static word place(void *address)
{
    return (word)(uintptr_t)address;
}

static char *context(char *at, const char *name, word allocated)
{
    *(uint32_t *)at = 1;
    *(word *)(at + 8) = allocated;
    *(word *)(at + 16) = place(&TopMemoryContext);
    *(word *)(at + 56) = (word)(uintptr_t)name;
    return at;
}

static void block(char *at, char *owner, word next, word free_from, word end)
{
    word fields[] = {place(owner), 0, next, free_from, end};
    memcpy(at, fields, sizeof fields);
}

/* A dlist with at most one node. */
static void ring(char *head, char *node)
{
    word before = place(head), first = place(node ? node : head);
    ((word *)head)[0] = ((word *)head)[1] = first;
    if (node)
        ((word *)node)[0] = ((word *)node)[1] = before;
}

static void set(char *at, word size, word unused)
{
    context(at, "TopMemoryContext", size);
    *(word *)(at + 80) = place(at + SET);
    block(at + SET, at, 0, place(at) + size - unused, place(at) + size);
}

static void slab(char *at, char *blocks, word size, uint32_t unused, uint32_t empty)
{
    context(at, "TopMemoryContext", size * (1 + (word)empty));
    *(uint32_t *)(at + 84) = 1;
    *(uint32_t *)(at + 88) = (uint32_t)size;
    *(uint32_t *)(at + 92) = (uint32_t)size;
    *(uint32_t *)(at + 120) = empty;
    ring(at + 104, empty ? blocks + size + 32 : NULL);
    for (int number = 0; number < 3; number++)
        ring(at + 128 + 16 * number, number ? NULL : blocks + 32);
    *(word *)blocks = place(at);
    *(uint32_t *)(blocks + 8) = unused;
}

static void many(char *top, word children, word length)
{
    word each = PAGE_SIZE + (length + 8) / 8 * 8;
    char *from = pages(children * each), *shared = pages(length + 1);
    memset(shared, 'x', length);
    *(word *)(top + 32) = place(from);
    for (word number = 0; number < children; number++) {
        char *at = context(from + number * each, "child", PAGE_SIZE), *ident = at + PAGE_SIZE;
        if (length % 2)
            memset(ident, 'a' + (int)(number % 26), length);
        *(word *)(at + 24) = place(top);
        *(word *)(at + 40) = number ? place(at - each) : 0;
        *(word *)(at + 48) = number + 1 < children ? place(at + each) : 0;
        *(word *)(at + 64) = place(length % 2 ? ident : shared);
        *(word *)(at + 80) = place(at + SET);
        block(at + SET, at, 0, place(at) + PAGE_SIZE, place(at) + PAGE_SIZE);
    }
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    char *at = pages(16 * PAGE_SIZE), *blocks = pages(16 * PAGE_SIZE);
    word size = strtoull(words[2], NULL, 0), unused = strtoull(words[3], NULL, 0);
    TopMemoryContext = at;
    if (!strcmp(words[1], "slab")) {
        slab(at, blocks, size, (uint32_t)unused, 0);
        size += SLAB;
    } else if (!strcmp(words[1], "empty")) {
        slab(at, blocks, PAGE_SIZE, (uint32_t)unused, (uint32_t)size);
        size = SLAB + (1 + size) * PAGE_SIZE;
    } else {
        set(at, words[1][0] == 's' ? size : 2 * PAGE_SIZE, words[1][0] == 'm' ? 0 : unused);
    }
    if (!strcmp(words[1], "bare")) {
        *(word *)(at + 80) = 0;
        *(word *)(at + 8) = SET;
    }
    if (!strcmp(words[1], "many"))
        many(at, size, unused);
    if (!strcmp(words[1], "link"))
        *(word *)(at + SET + 16) = size;
    if (!strcmp(words[1], "twice")) {
        char *child = context(at + 4 * PAGE_SIZE, "child", PAGE_SIZE + size), *inside = at + PAGE_SIZE;
        *(word *)(child + 24) = place(at);
        *(word *)(at + 32) = place(child);
        *(word *)(child + 80) = place(child + SET);
        block(child + SET, child, place(inside), place(child) + PAGE_SIZE, place(child) + PAGE_SIZE);
        block(inside, child, 0, place(inside) + size, place(inside) + size);
    }
    printf("%llu\n", (unsigned long long)size);
    fflush(stdout);
    park();
}
