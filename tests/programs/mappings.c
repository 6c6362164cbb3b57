/* mappings SEED FILE
 *
 * One process with every kind of mapping that has its own way to be counted: shared and private, anonymous and of FILE
 * (at least 1 MiB), written, read only (the shared zero page), never touched, unreadable; threads with stacks; a small heap.
 * Sizes are random. Then it pauses.
 */
#include "target.h"
#include <sys/stat.h>

static uint64_t random_state;

static size_t some_pages(void)
{
    return 4096 * between(&random_state, 1, 200);
}

static void *map(size_t size, int protection, int flags, int file)
{
    void *memory = mmap(NULL, size, protection, flags, file, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

/* Writes random pages of a mapping. */
static void write_some(char *memory, size_t size)
{
    for (size_t page = 0; page < size; page += 4096)
        if (draw(&random_state) % 3 != 0)
            memory[page] = (char)draw(&random_state);
}

static uint64_t read_some(const volatile char *memory, size_t size)
{
    uint64_t sum = 0;
    for (size_t page = 0; page < size; page += 4096)
        if (draw(&random_state) % 3 != 0)
            sum += (uint64_t)memory[page];
    return sum;
}

static void anonymous(void)
{
    size_t size = some_pages();
    write_some(map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), size);
    map(some_pages(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    size = some_pages();
    read_some(map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), size);
    map(some_pages(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    size = some_pages();
    write_some(map(size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1), size);
}

/* Written, then made unreadable: its pages stay. */
static void hidden(void)
{
    size_t size = some_pages();
    char *memory = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    write_some(memory, size);
    mprotect(memory, size, PROT_NONE);
}

static void of_file(const char *path)
{
    int file = open(path, O_RDWR);
    size_t size = some_pages();
    if (file < 0)
        abort();
    read_some(map(size, PROT_READ, MAP_PRIVATE, file), size);
    size = some_pages();
    write_some(map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file), size);
    size = some_pages();
    write_some(map(size, PROT_READ | PROT_WRITE, MAP_SHARED, file), size);
    close(file);
}

static void *start(void *argument)
{
    char local[20000];
    memset(local, 1, sizeof local);
    free(memalign(64, 100 + (size_t)local[5]));
    pthread_barrier_wait(argument);
    park();
    return NULL;
}

static void use_threads(void)
{
    static pthread_barrier_t ready;
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, 4);
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, start, &ready);
    pthread_barrier_wait(&ready);
}

static void use_heap(void)
{
    for (int i = 0; i < 2000; i++) {
        size_t size = between(&random_state, 1, 300000);
        char *memory = malloc(size);
        memset(memory, 1, size / 2 + 1);
        if (i % 2)
            free(memory);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    for (int i = 0; i < 5; i++) {
        anonymous();
        hidden();
        of_file(argv[2]);
    }
    use_threads();
    use_heap();
    park();
}
