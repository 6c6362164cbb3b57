/* two_mallocs SEED TABLE LIBRARY
 *
 * Random blocks of two allocators: of whatever malloc() is here, and of LIBRARY's own, which binds to its own symbols. Three of four are
 * freed again. TABLE gets {pointer, usable, which} of u64 each of what is left, which 0 for the first; then it waits.
 */
#include "target.h"
#include <dlfcn.h>

#define BLOCKS 6000

struct allocator { void *(*take)(size_t); void (*give)(void *); size_t (*usable)(void *); };
struct row { uint64_t pointer, usable, which; };

static struct row rows[BLOCKS];

static struct allocator of_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == NULL)
        abort();
    return (struct allocator){
        (void *(*)(size_t))dlsym(library, "malloc"), (void (*)(void *))dlsym(library, "free"),
        (size_t (*)(void *))dlsym(library, "malloc_usable_size"),
    };
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint64_t random = seeded(strtoull(argv[1], NULL, 10));
    struct allocator both[] = {{malloc, free, malloc_usable_size}, of_library(argv[3])};
    if (both[0].take == both[1].take)
        return 3;
    for (size_t i = 0; i < BLOCKS; i++) {
        uint64_t which = draw(&random) % 2;
        unsigned kind = (unsigned)(draw(&random) % 100);
        size_t size = between(&random, 1, kind < 60 ? 200 : kind < 95 ? 5000 : 300000);
        void *block = both[which].take(size);
        memset(block, 0xA5, size);
        rows[i] = (struct row){(uint64_t)block, both[which].usable(block), which};
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (draw(&random) % 4 != 0) {
            both[rows[i].which].give((void *)rows[i].pointer);
            rows[i].pointer = 0;
        }
    int file = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, rows, sizeof rows) != sizeof rows)
        return 2;
    close(file);
    park();
}
