/* A malloc that nobody walks, to be preloaded: blocks of the powers of two with a header, cut from mappings and kept in lists.
 *
 * It has two functions of tcmalloc's, so that it is taken for one of those whose blocks are not known, and its memory can be
 * asked for: MallocExtension_GetNumericProperty("generic.heap_size").
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER = 16, LEAST = 5, LARGEST = 17, PIECE = 1 << 20, PAGE = 4096 };

/* Right before a block. What was aligned has its distance from the block that was cut. */
struct header { uint32_t class, distance; size_t size; };

static atomic_flag taken = ATOMIC_FLAG_INIT;
static char *lists[LARGEST + 1], *next, *end;
static atomic_size_t mapped;

static void *pages(size_t size)
{
    void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return NULL;
    mapped += size;
    return found;
}

static struct header *header(void *block) { return (struct header *)((char *)block - HEADER); }

static void *given(char *start, uint32_t class, size_t size)
{
    char *block = start + HEADER;
    *header(block) = (struct header){ class, 0, size };
    return block;
}

static char *cut(uint32_t class)
{
    size_t size = (size_t)1 << class;
    char *found;
    while (atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))
        ;
    if ((found = lists[class]) != NULL) {
        lists[class] = *(char **)(found + HEADER);
    } else {
        if ((size_t)(end - next) < size) {
            next = pages(PIECE);
            end = next == NULL ? NULL : next + PIECE;
        }
        if ((found = next) != NULL)
            next += size;
    }
    atomic_flag_clear_explicit(&taken, memory_order_release);
    return found;
}

void *malloc(size_t size)
{
    char *start = NULL;
    uint32_t class = LEAST;
    if (size > SIZE_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    while (class <= LARGEST && ((size_t)1 << class) < size + HEADER)
        class++;
    size_t whole = class <= LARGEST ? (size_t)1 << class : (size + HEADER + PAGE - 1) / PAGE * PAGE;
    start = class <= LARGEST ? cut(class) : pages(whole);
    if (start == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    return given(start, class, whole - HEADER);
}

void free(void *block)
{
    if (block == NULL)
        return;
    int before = errno;
    char *start = (char *)block - header(block)->distance - HEADER;
    struct header found = *header(start + HEADER);
    if (found.class > LARGEST) {
        mapped -= found.size + HEADER;
        munmap(start, found.size + HEADER);
    } else {
        while (atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))
            ;
        *(char **)(start + HEADER) = lists[found.class];
        lists[found.class] = start;
        atomic_flag_clear_explicit(&taken, memory_order_release);
    }
    errno = before;
}

size_t malloc_usable_size(void *block) { return block == NULL ? 0 : header(block)->size; }

void *calloc(size_t count, size_t size)
{
    size_t whole;
    if (__builtin_mul_overflow(count, size, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = malloc(whole);
    return block == NULL ? NULL : memset(block, 0, whole);
}

void *realloc(void *block, size_t size)
{
    if (block != NULL && size != 0 && size <= header(block)->size)
        return block;
    void *other = malloc(size);
    if (other != NULL && block != NULL) {
        memcpy(other, block, header(block)->size < size ? header(block)->size : size);
        free(block);
    }
    return other;
}

void *memalign(size_t alignment, size_t size)
{
    char *block = malloc(size + alignment + HEADER);
    if (block == NULL)
        return NULL;
    char *aligned = (char *)(((uintptr_t)block + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (aligned == block)
        return block;
    /* Both headers have room: what is between them is a multiple of 16. */
    size_t distance = (size_t)(aligned - block);
    *header(aligned) = (struct header){ header(block)->class, (uint32_t)distance, header(block)->size - distance };
    return aligned;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **place, size_t alignment, size_t size)
{
    *place = memalign(alignment, size);
    return *place == NULL ? ENOMEM : 0;
}

void *tc_malloc(size_t size) { return malloc(size); }

int MallocExtension_GetNumericProperty(const char *name, size_t *value)
{
    if (strcmp(name, "generic.heap_size") != 0)
        return 0;
    *value = mapped;
    return 1;
}
