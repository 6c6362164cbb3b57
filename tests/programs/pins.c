/* pins SEED THREADS BLOCKS KEPT LARGEST MODE TABLE
 *
 * The main thread and THREADS - 1 more allocate BLOCKS blocks each and free all but about one in KEPT. TABLE is {pointer}
 * of u64 each: what is still held. Then it reads standard input: for each line, the path of a file with pointers of u64
 * each, it frees those, calls malloc_trim(0), and reads again. MODE, added up: 1 they are freed by a thread that ends
 * then, whose cache is emptied; 2 the break is blocked; 4 the end of the break was moved by somebody else.
 */
#include "target.h"

#define SMALL 100
#define MOST 1000000

static size_t block_count, kept_of, largest;
static uint64_t *table, table_size;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t filled;

struct worker {
    uint64_t random;
    char **blocks;
};

static void fill(struct worker *self)
{
    for (size_t i = 0; i < block_count; i++) {
        uint64_t kind = draw(&self->random) % 64;
        size_t size = between(&self->random, 1, kind == 0 ? largest : kind < 24 ? SMALL : 3000);
        self->blocks[i] = memset(malloc(size), 1, size);
    }
    for (size_t i = 0; i < block_count; i++)
        if (draw(&self->random) % kept_of != 0) {
            free(self->blocks[i]);
            self->blocks[i] = NULL;
        }
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < block_count && table_size < MOST; i++)
        if (self->blocks[i] != NULL)
            table[table_size++] = (uint64_t)self->blocks[i];
    pthread_mutex_unlock(&table_lock);
    pthread_barrier_wait(&filled);
}

static void *start(void *argument)
{
    fill(argument);
    park();
    return NULL;
}

static void *free_told(void *path)
{
    uint64_t pointer;
    int file = open(path, O_RDONLY);
    if (file < 0)
        abort();
    while (read(file, &pointer, sizeof pointer) == sizeof pointer)
        free((void *)pointer);
    close(file);
    return NULL;
}

static void obey(int in_thread)
{
    char line[4096];
    ssize_t size;
    while ((size = read(0, line, sizeof line)) > 1) {
        pthread_t thread;
        line[size - 1] = 0;
        if (!in_thread)
            free_told(line);
        else if (pthread_create(&thread, NULL, free_told, line) == 0)
            pthread_join(thread, NULL);
        malloc_trim(0);
    }
}

int main(int argc, char **argv)
{
    if (argc != 8)
        return 2;
    size_t threads = strtoull(argv[2], NULL, 10);
    block_count = strtoull(argv[3], NULL, 10);
    kept_of = strtoull(argv[4], NULL, 10);
    largest = strtoull(argv[5], NULL, 10);
    int mode = atoi(argv[6]);
    struct worker *workers = pages(threads * sizeof *workers);
    table = pages(MOST * sizeof *table);
    pthread_barrier_init(&filled, NULL, (unsigned)threads);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (mode & 2)
        block_break();
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        workers[i].random = seeded(strtoull(argv[1], NULL, 10) * 1000 + i);
        workers[i].blocks = pages(block_count * sizeof *workers[i].blocks);
        if (i > 0)
            pthread_create(&thread, NULL, start, &workers[i]);
    }
    fill(&workers[0]);
    if (mode & 4)
        sbrk((intptr_t)(16 * between(&workers[0].random, 1, 600)));
    write_file(argv[7], table, table_size * sizeof *table);
    munmap(table, MOST * sizeof *table);
    obey(mode & 1);
}
