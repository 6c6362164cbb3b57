/* held_now THREADS SEED OPERATIONS TABLE
 *
 * Random malloc, calloc, realloc, posix_memalign and free in THREADS threads (one: the main thread alone), by whatever
 * malloc() is here; blocks are freed by other threads, too. Every second thread ends with its blocks alive. Then it reads
 * standard input: a line with "collect" calls mi_collect(true), "drop" frees nine blocks in ten, and "empty" all.
 * OPERATIONS 0: it never ends.
 * Where jemalloc's mallctl() is, "collect" purges all arenas, and "stats" writes what jemalloc counts to the file TABLE.stats:
 * lines of "NAME VALUE", or of "NAME ARENA VALUE" and "NAME ARENA SIZE VALUE" where that is not 0. Where tcmalloc's
 * extension is, "collect" releases its free memory, and "stats" writes its properties, "NAME VALUE" each.
 *
 * TABLE is a file that is mapped, {visited, bytes} of u64 each and then {pointer, usable, requested} of u64 each. A pointer
 * is there from after it was given until before it is freed, at any instant. visited: what mi_heap_visit_blocks() counts of
 * the main thread's heap, if there is one thread and that function.
 */
#include "target.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>

#define SLOTS 1500

struct slot { _Atomic uint64_t pointer; uint64_t usable, requested; };
struct table { uint64_t visited, bytes; struct slot slots[]; };
struct worker { uint64_t random; struct slot *own; pthread_t thread; bool ends, is_main; };

static struct table *table;
static size_t operations, thread_count;
static _Atomic size_t done;

static size_t random_size(uint64_t *random)
{
    unsigned kind = (unsigned)(draw(random) % 1000);
    return between(random, 1, kind < 600 ? 200 : kind < 900 ? 2000 : kind < 990 ? 20000 : kind < 998 ? 300000 : 3000000);
}

static void *allocate(uint64_t *random, size_t size)
{
    void *found = NULL;
    switch (draw(random) % 16) {
    case 0:
        return calloc(1, size);
    case 1:
        return posix_memalign(&found, (size_t)16 << (draw(random) % 9), size) == 0 ? found : NULL;
    case 2:
        return realloc(malloc(size / 2 + 1), size);
    default:
        return malloc(size);
    }
}

static void step(struct worker *self)
{
    uint64_t *random = &self->random;
    struct slot *slot = &self->own[draw(random) % SLOTS];
    if (draw(random) % 4 == 0)
        slot = &table->slots[draw(random) % (SLOTS * thread_count)];
    uint64_t taken = atomic_exchange(&slot->pointer, 0);
    bool is_own = slot >= self->own && slot < self->own + SLOTS;
    if (taken != 0)
        free((void *)taken);
    else if (is_own) {
        size_t size = random_size(random);
        void *block = allocate(random, size);
        if (block == NULL)
            abort();
        memset(block, 0xA5, size);
        slot->usable = malloc_usable_size(block);
        slot->requested = size;
        atomic_store(&slot->pointer, (uint64_t)block);
    }
}

static void *work(void *argument)
{
    struct worker *self = argument;
    for (size_t i = 0; operations == 0 || i < operations; i++)
        step(self);
    done++;
    if (!self->ends && !self->is_main)
        park();
    return NULL;
}

static bool visit(const void *heap, const void *area, void *block, size_t size, void *argument)
{
    (void)heap, (void)area, (void)argument;
    if (block != NULL) {
        table->visited++;
        table->bytes += size;
    }
    return true;
}

static void count_blocks(void)
{
    void *(*heap)(void) = dlsym(RTLD_DEFAULT, "mi_heap_get_default");
    if (heap == NULL)
        heap = dlsym(RTLD_DEFAULT, "mi_heap_main");
    bool (*visit_blocks)(void *, bool, void *, void *) = dlsym(RTLD_DEFAULT, "mi_heap_visit_blocks");
    if (heap != NULL && visit_blocks != NULL)
        visit_blocks(heap(), true, visit, NULL);
}

static int (*control)(const char *, void *, size_t *, void *, size_t);
static int stats_file;

/* mallctl()'s value of that name, a size_t or as many bytes as SIZE. */
static uint64_t counted(size_t size, const char *format, size_t arena, size_t place)
{
    char name[96];
    uint64_t value = 0;
    snprintf(name, sizeof name, format, arena, place);
    return control(name, &value, &size, NULL, 0) == 0 ? value : 0;
}

static void tell(const char *name, long arena, uint64_t class, uint64_t value)
{
    char line[128], at[64] = "";
    if (arena >= 0 && class != 0)
        snprintf(at, sizeof at, " %ld %lu", arena, class);
    else if (arena >= 0)
        snprintf(at, sizeof at, " %ld", arena);
    int size = snprintf(line, sizeof line, "%s%s %lu\n", name, at, value);
    if ((value != 0 || arena < 0) && write(stats_file, line, (size_t)size) != size)
        abort();
}

/* Of the huge page allocator: how many stretches of 2 MiB it has, and their active and their dirty pages. */
static void tell_huge(size_t arena)
{
    static const char *const sums[] = {"npageslabs", "nactive", "ndirty"}, *const kinds[] = {"huge", "nonhuge"};
    char format[96];
    for (size_t i = 0; i < 3; i++) {
        uint64_t sum = 0;
        for (size_t kind = 0; kind < 2; kind++) {
            snprintf(format, sizeof format, "stats.arenas.%%zu.hpa_shard.full_slabs.%s_%s", sums[i], kinds[kind]);
            sum += counted(8, format, arena, 0);
            snprintf(format, sizeof format, "stats.arenas.%%zu.hpa_shard.empty_slabs.%s_%s", sums[i], kinds[kind]);
            sum += counted(8, format, arena, 0);
            snprintf(format, sizeof format, "stats.arenas.%%zu.hpa_shard.nonfull_slabs.%%zu.%s_%s", sums[i], kinds[kind]);
            for (size_t place = 0; place < 64; place++)
                sum += counted(8, format, arena, place);
        }
        snprintf(format, sizeof format, "hpa_%s", sums[i]);
        tell(format, (long)arena, 0, sum);
    }
}

static void tell_arena(size_t arena)
{
    static const char *const pages[] = {"pactive", "pdirty", "pmuzzy", "mapped", "retained", "base", "internal", "tcache_bytes"};
    static const char *const counts[] = {"curregs", "curslabs"};
    char format[96];
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        snprintf(format, sizeof format, "stats.arenas.%%zu.%s", pages[i]);
        tell(pages[i], (long)arena, 0, counted(8, format, arena, 0));
    }
    for (size_t bin = 0; bin < counted(4, "arenas.nbins", 0, 0); bin++)
        for (size_t i = 0; i < 2; i++) {
            snprintf(format, sizeof format, "stats.arenas.%%zu.bins.%%zu.%s", counts[i]);
            tell(counts[i], (long)arena, counted(8, "arenas.bin.%zu.size", bin, 0), counted(8, format, arena, bin));
        }
    for (size_t large = 0; large < counted(4, "arenas.nlextents", 0, 0); large++) {
        uint64_t size = counted(8, "arenas.lextent.%zu.size", large, 0);
        tell("class", (long)arena, size, 1);
        tell("curlextents", (long)arena, size, counted(8, "stats.arenas.%zu.lextents.%zu.curlextents", arena, large));
    }
    tell_huge(arena);
}

/* All of it counts what is at this instant; nothing is allocated for it. */
static void tell_stats(const char *path)
{
    uint64_t epoch = 1;
    char name[4096];
    snprintf(name, sizeof name, "%s.stats", path);
    stats_file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    control("epoch", NULL, NULL, &epoch, sizeof epoch);
    static const char *const sums[] = {"allocated", "active", "metadata", "mapped", "retained"};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        snprintf(name, sizeof name, "stats.%s", sums[i]);
        tell(sums[i], -1, 0, counted(8, name, 0, 0));
    }
    for (size_t arena = 0; arena < counted(4, "arenas.narenas", 0, 0); arena++)
        tell_arena(arena);
    close(stats_file);
}

/* What tcmalloc counts: it goes round its threads' caches for that, and allocates nothing. */
static void tell_properties(int (*property)(const char *, size_t *), const char *path)
{
    static const char *const names[] = {
        "generic.current_allocated_bytes", "generic.heap_size", "tcmalloc.central_cache_free_bytes",
        "tcmalloc.transfer_cache_free_bytes", "tcmalloc.thread_cache_free_bytes", "tcmalloc.pageheap_free_bytes",
        "tcmalloc.pageheap_unmapped_bytes",
    };
    char name[4096];
    snprintf(name, sizeof name, "%s.stats", path);
    stats_file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t value = 0;
        property(names[i], &value);
        tell(names[i], -1, 0, value);
    }
    close(stats_file);
}

static void obey(const char *line, const char *path)
{
    /* What is not found has a message on the heap: mimalloc's tests count every block. */
    void (*collect)(bool) = dlsym(RTLD_DEFAULT, "mi_collect");
    control = collect == NULL ? dlsym(RTLD_DEFAULT, "mallctl") : NULL;
    int (*property)(const char *, size_t *) = NULL;
    void (*release)(void) = NULL;
    if (collect == NULL && control == NULL) {
        property = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
        release = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    }
    if (strncmp(line, "stats", 5) == 0 && control != NULL)
        tell_stats(path);
    if (strncmp(line, "stats", 5) == 0 && property != NULL)
        tell_properties(property, path);
    if (strncmp(line, "collect", 7) == 0 && release != NULL)
        release();
    if (strncmp(line, "collect", 7) == 0 && control != NULL)
        control("arena.4096.purge", NULL, NULL, NULL, 0);
    bool drops = strncmp(line, "drop", 4) == 0, empties = strncmp(line, "empty", 5) == 0;
    if (drops || empties)
        for (size_t i = 0; i < SLOTS * thread_count; i++)
            if (empties || i % 10 != 0)
                free((void *)atomic_exchange(&table->slots[i].pointer, 0));
    if (strncmp(line, "collect", 7) == 0 && collect != NULL)
        collect(true);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    /* What huge pages make resident beside what was touched is another matter. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    thread_count = strtoull(argv[1], NULL, 10);
    uint64_t random = seeded(strtoull(argv[2], NULL, 10));
    operations = strtoull(argv[3], NULL, 10);
    size_t size = sizeof *table + thread_count * SLOTS * sizeof(struct slot);
    int file = open(argv[4], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        return 2;
    table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct worker *workers = pages(thread_count * sizeof *workers);
    for (size_t i = 0; i < thread_count; i++) {
        workers[i] = (struct worker){seeded(draw(&random)), table->slots + i * SLOTS, 0, i % 2 == 1, i == 0};
        if (i > 0 && pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    work(&workers[0]);
    while (done < thread_count)
        usleep(1000);
    for (size_t i = 1; i < thread_count; i++)
        if (workers[i].ends)
            pthread_join(workers[i].thread, NULL);
    if (thread_count == 1)
        count_blocks();
    char line[64];
    for (;;) {
        ssize_t got = read(0, line, sizeof line - 1);
        if (got <= 0)
            park();
        line[got] = 0;
        obey(line, argv[4]);
    }
}
