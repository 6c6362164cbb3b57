/* two_roots FIRST SECOND SEED TABLE
 *
 * Two libraries that each bring malloc(), beside the C library's: each gives a number of blocks of random sizes, and has some
 * of them back. To the file TABLE go lines of "N held POINTER USABLE" for the library with the number N, and then of "N NAME
 * VALUE" for what its mallctl() says, if it has one.
 */
#include "target.h"
#include <dlfcn.h>

#define BLOCKS 3000

struct library {
    void *(*allocate)(size_t);
    void (*release)(void *);
    size_t (*usable)(void *);
    int (*control)(const char *, void *, size_t *, void *, size_t);
};

static struct library opened(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return (struct library){dlsym(handle, "malloc"), dlsym(handle, "free"), dlsym(handle, "malloc_usable_size"),
                            dlsym(handle, "mallctl")};
}

static void tell(FILE *table, size_t number, const struct library *from)
{
    static const char *const names[] = {"stats.active", "stats.retained", "stats.arenas.4096.pdirty",
                                        "stats.arenas.4096.pmuzzy", "stats.allocated"};
    uint64_t epoch = 1;
    from->control("epoch", NULL, NULL, &epoch, sizeof epoch);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t value = 0, size = sizeof value;
        if (from->control(names[i], &value, &size, NULL, 0) == 0)
            fprintf(table, "%zu %s %zu\n", number, names[i], value);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    uint64_t random = seeded(strtoull(argv[3], NULL, 10));
    struct library both[2] = {opened(argv[1]), opened(argv[2])};
    FILE *table = fopen(argv[4], "w");
    for (size_t number = 0; number < 2; number++) {
        struct library *from = &both[number];
        size_t count = BLOCKS * (number + 1);
        void **blocks = pages(count * sizeof *blocks);
        for (size_t i = 0; i < count; i++) {
            size_t size = between(&random, 1, i % 100 == 0 ? 300000 : 3000);
            blocks[i] = from->allocate(size);
            memset(blocks[i], 0xA5, size);
        }
        for (size_t i = 0; i < count; i++)
            if (draw(&random) % (3 - number) == 0) {
                from->release(blocks[i]);
                blocks[i] = NULL;
            }
        for (size_t i = 0; i < count; i++)
            if (blocks[i] != NULL)
                fprintf(table, "%zu held %lu %zu\n", number, (unsigned long)blocks[i], from->usable(blocks[i]));
    }
    for (size_t number = 0; number < 2; number++)
        if (both[number].control != NULL)
            tell(table, number, &both[number]);
    fclose(table);
    park();
}
