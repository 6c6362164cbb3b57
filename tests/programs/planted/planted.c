/* See planted.h. */
#include "planted.h"
#include "../target.h"
#include <dlfcn.h>

typedef int (*check)(void);

enum { MOST = 1 << 16, STACK = 1 << 20 };

struct row { uint64_t hidden, requested, chunk, kind, group; };

static struct row *table;
static size_t rows;
static int is_checked;
static uint64_t random_state, groups;
static const char *path;
static pthread_barrier_t settled;

size_t planted_between(size_t low, size_t high) { return between(&random_state, low, high); }

uint64_t planted_group(void) { return ++groups; }

void *planted_block(size_t size)
{
    char *block = malloc(size);
    if (block == NULL)
        abort();
    /* No address, not even on x86-64; also behind what was asked for, where words of earlier blocks may be. */
    return memset(block, 0x91, malloc_usable_size(block));
}

void planted_note(const void *block, size_t size, enum planted_kind kind, uint64_t group)
{
    if (rows == MOST)
        abort();
    /* Only glibc has the chunk's bytes there. */
    uint64_t chunk = is_checked ? 0 : ((const uint64_t *)block)[-1] & ~(uint64_t)7;
    table[rows++] = (struct row){ ~(uint64_t)block, size, chunk, kind, group };
}

void *planted_lost(size_t size, enum planted_kind kind, uint64_t group)
{
    void *block = planted_block(size);
    planted_note(block, size, kind, group);
    return block;
}

static void *called(void *plant)
{
    (*(void (**)(void))plant)();
    return NULL;
}

void planted_apart(void (*plant)(void))
{
    void *stack = pages(STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, STACK) || pthread_create(&thread, &attributes, called, &plant))
        abort();
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    munmap(stack, STACK);
}

struct start { void (*run)(uint64_t); uint64_t hidden; };

static void *stays(void *given)
{
    struct start start = *(struct start *)given;
    memset(given, 0, sizeof start);
    start.run(start.hidden);
    park();
    return NULL;
}

void planted_thread(void (*run)(uint64_t), uint64_t hidden)
{
    struct start start = { run, hidden };
    pthread_t thread;
    pthread_barrier_init(&settled, NULL, 2);
    if (pthread_create(&thread, NULL, stays, &start))
        abort();
    pthread_barrier_wait(&settled);
}

void planted_settled(void) { pthread_barrier_wait(&settled); }

static check leak_sanitizer(void)
{
    return (check)dlsym(RTLD_DEFAULT, "__lsan_do_recoverable_leak_check");
}

void planted_begin(int argc, char **argv)
{
    const char *preloaded = getenv("LD_PRELOAD");
    is_checked = leak_sanitizer() != NULL || (preloaded != NULL && strstr(preloaded, "vgpreload") != NULL);
    if (argc < 3)
        exit(2);
    random_state = seeded(strtoull(argv[1], NULL, 10));
    path = argv[2];
    table = pages(MOST * sizeof *table);
    /* With one arena, or with as many as glibc likes. */
    if (planted_between(0, 1))
        mallopt(M_ARENA_MAX, 1);
}

__attribute__((noinline)) static int wiped(void)
{
    volatile char stack[65536];
    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = 0;
    return stack[17];
}

int planted_end(void)
{
    write_file(path, table, rows * sizeof *table);
    munmap(table, MOST * sizeof *table);
    wiped();
    if (leak_sanitizer() != NULL) {
        leak_sanitizer()();
        _exit(0);
    }
    /* valgrind looks at the end. */
    if (is_checked)
        _exit(0);
    char byte;
    return read(0, &byte, 1) < 0;
}
