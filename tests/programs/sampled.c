/* sampled SEED DUMP
 *
 * Allocates in three functions, from several depths, and frees some, above a jemalloc that samples allocations. Then it writes
 * jemalloc's own profile to the file DUMP (mallctl("prof.dump")) and pauses.
 */
#include "target.h"
#include <dlfcn.h>

#define KEPT 6000

static void *kept[KEPT];
static size_t held;

static __attribute__((noinline)) void *small(uint64_t *random)
{
    void *found = malloc(between(random, 1, 200));
    __asm__ volatile("" ::: "memory");
    return found;
}

static __attribute__((noinline)) void *medium(uint64_t *random)
{
    void *found = malloc(between(random, 300, 14000));
    __asm__ volatile("" ::: "memory");
    return found;
}

static __attribute__((noinline)) void *large(uint64_t *random)
{
    void *found = malloc(between(random, 20000, 400000));
    __asm__ volatile("" ::: "memory");
    return found;
}

static __attribute__((noinline)) void *deeper(uint64_t *random, unsigned depth)
{
    void *found = depth > 0 ? deeper(random, depth - 1) : draw(random) % 20 == 0 ? large(random) : medium(random);
    __asm__ volatile("" ::: "memory");
    return found;
}

static void *work(void *argument)
{
    uint64_t random = seeded((uint64_t)argument);
    for (size_t i = 0; i < 2 * KEPT; i++) {
        size_t place = __atomic_fetch_add(&held, 1, __ATOMIC_RELAXED) % KEPT;
        void *made = draw(&random) % 3 == 0 ? small(&random) : deeper(&random, (unsigned)(draw(&random) % 5));
        free(__atomic_exchange_n(&kept[place], made, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int (*control)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    uint64_t seed = strtoull(argv[1], NULL, 10);
    pthread_t other;
    if (control == NULL || pthread_create(&other, NULL, work, (void *)(seed + 1)) != 0)
        return 2;
    work((void *)seed);
    pthread_join(other, NULL);
    const char *name = argv[2];
    if (control("prof.dump", NULL, NULL, &name, sizeof name) != 0)
        return 3;
    park();
}
