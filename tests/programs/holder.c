/* holder SEED BLOCKS TABLE
 *
 * BLOCKS random blocks from whatever malloc() is here, written to the last byte; a third is freed again. TABLE is {pointer,
 * requested} of u64 each. Then "mapped N" goes to standard error: the bytes that the allocator says it has from the
 * kernel, where it is one that says so. Then it pauses.
 */
#include "target.h"
#include <dlfcn.h>

struct record { uint64_t pointer, requested; };

static size_t jemallocs(int (*mallctl)(const char *, void *, size_t *, void *, size_t), const char *name)
{
    uint64_t epoch = 1;
    size_t value = 0, size = sizeof value;
    mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
    if (mallctl(name, &value, &size, NULL, 0) != 0)
        abort();
    return value;
}

static size_t tcmallocs(int (*property)(const char *, size_t *), const char *name)
{
    size_t value = 0;
    if (!property(name, &value))
        abort();
    return value;
}

static size_t mimallocs(void (*info)(size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *))
{
    size_t spent, user, system, rss, most_rss, commit, most_commit, faults;
    info(&spent, &user, &system, &rss, &most_rss, &commit, &most_commit, &faults);
    return commit;
}

static void tell(void)
{
    void *found;
    if ((found = dlsym(RTLD_DEFAULT, "mallctl")) != NULL)
        fprintf(stderr, "mapped %zu\n", jemallocs(found, "stats.mapped"));
    else if ((found = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty")) != NULL)
        fprintf(stderr, "mapped %zu\n", tcmallocs(found, "generic.heap_size"));
    else if ((found = dlsym(RTLD_DEFAULT, "mi_process_info")) != NULL)
        fprintf(stderr, "mapped %zu\n", mimallocs(found));
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint64_t random = seeded(strtoull(argv[1], NULL, 10));
    size_t count = strtoull(argv[2], NULL, 10), kept = 0;
    struct record *records = malloc(count * sizeof *records);
    for (size_t i = 0; i < count; i++) {
        size_t size = between(&random, 1, i % 50 == 0 ? 300000 : 2000);
        void *block = malloc(size);
        if (block == NULL)
            abort();
        memset(block, 0xA5, size);
        if (draw(&random) % 3 == 0)
            free(block);
        else
            records[kept++] = (struct record){(uint64_t)block, size};
    }
    write_file(argv[3], records, kept * sizeof *records);
    tell();
    park();
}
