/* An allocator that bears signal handlers: it hands out memory from one block by an atomic counter, and takes nothing
   back. Loaded before a program (LD_PRELOAD), built as a library. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static char *block;
static size_t used;
static const size_t room = (size_t)8 << 30;

static void *hand_out(size_t alignment, size_t size) {
    if (block == NULL) block = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t whole = (size + 16 + alignment + 15) & ~(size_t)15;
    size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    uintptr_t start = ((uintptr_t)block + at + 16 + alignment - 1) & ~(alignment - 1);
    ((size_t *)start)[-1] = size;
    return (void *)start;
}
void *memalign(size_t alignment, size_t size) { return hand_out(alignment, size); }
void *malloc(size_t size) { return hand_out(16, size); }
void *calloc(size_t count, size_t each) { return hand_out(16, count * each); }
void free(void *address) { (void)address; }
size_t malloc_usable_size(void *address) { return ((size_t *)address)[-1]; }
void *realloc(void *old, size_t size) {
    void *found = hand_out(16, size);
    if (old != NULL) {
        size_t before = ((size_t *)old)[-1];
        memcpy(found, old, before < size ? before : size);
    }
    return found;
}
