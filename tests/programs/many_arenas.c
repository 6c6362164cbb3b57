/* many_arenas SEED THREADS COUNT FILE
 *
 * THREADS threads, which live on, each with COUNT blocks of random sizes up to 14,000 bytes that it keeps, by whatever malloc() is
 * here, and then as many that it frees again, all at once: its cache has what it can have of them. When all are done, FILE has
 * the bytes that jemalloc or tcmalloc says are in all of their caches.
 */
#include "target.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#define LARGEST 14000

struct worker { uint64_t random; char **kept, **freed; pthread_t thread; };

static size_t count;
static _Atomic size_t done;

static void *fill(size_t size)
{
    return memset(malloc(size), 0xA5, size);
}

static void *work(void *argument)
{
    struct worker *self = argument;
    for (size_t i = 0; i < count; i++)
        self->kept[i] = fill(between(&self->random, 1, LARGEST));
    for (size_t i = 0; i < count; i++)
        self->freed[i] = fill(between(&self->random, 1, LARGEST));
    for (size_t i = 0; i < count; i++)
        free(self->freed[i]);
    done++;
    park();
    return NULL;
}

static size_t cached(void)
{
    int (*control)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    int (*property)(const char *, size_t *) = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
    uint64_t epoch = 1;
    size_t found = 0, shared = 0, size = sizeof found;
    if (control != NULL) {
        control("epoch", NULL, NULL, &epoch, sizeof epoch);
        control("stats.arenas.4096.tcache_bytes", &found, &size, NULL, 0);
    }
    if (property != NULL) {
        property("tcmalloc.thread_cache_free_bytes", &found);
        property("tcmalloc.transfer_cache_free_bytes", &shared);
    }
    return found + shared;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    /* What huge pages make resident beside what was touched is another matter. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    uint64_t random = seeded(strtoull(argv[1], NULL, 10));
    size_t threads = strtoull(argv[2], NULL, 10);
    count = strtoull(argv[3], NULL, 10);
    for (size_t i = 0; i < threads; i++) {
        struct worker *self = pages(sizeof *self);
        *self = (struct worker){seeded(draw(&random)), pages(count * sizeof(char *)), pages(count * sizeof(char *)), 0};
        if (pthread_create(&self->thread, NULL, work, self) != 0)
            abort();
    }
    while (done < threads)
        usleep(1000);
    char line[32];
    int size = snprintf(line, sizeof line, "%zu\n", cached());
    int file = open(argv[4], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    write_all(file, line, (size_t)size);
    close(file);
    park();
}
