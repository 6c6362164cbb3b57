/* own_malloc SEED BLOCKS TABLE: holder.c with a malloc() of its own, which hands out a mapping from its start. */
#include "holder.c"

#define ROOM ((size_t)1 << 30)

static char *room;
static size_t used;

void *malloc(size_t size)
{
    if (room == NULL)
        room = pages(ROOM);
    used = (used + 15) & ~(size_t)15;
    if (size > ROOM - used)
        return NULL;
    used += size;
    return room + used - size;
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t size)
{
    return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
    void *larger = malloc(size);
    if (block != NULL && larger != NULL)
        memcpy(larger, block, size);
    return larger;
}
