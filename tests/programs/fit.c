/* fit SEED WHERE SHAPE LARGEST TABLE RESULT
 *
 * Leaves free chunks of known sizes between blocks that are held, writes TABLE and reads a number from standard input;
 * then it calls malloc(number), writes RESULT and pauses. WHERE: 0 the main arena, 1 an arena of a second thread.
 * SHAPE: 0 free chunks only, no two of one size; 1 the same, some of them next to a chunk in a fast bin, and so is the
 * top chunk; 2 as 0 with the break blocked, so that the main arena grows by mmap.
 *
 * TABLE is {pointer, usable, held} of u64 each. What is not held and SMALL is in the tcache or a fast bin.
 * RESULT is {pointer, usable, growth of the arenas' system bytes, of the break, of the mmapped bytes} of u64 each.
 */
#include "target.h"

#define HOLES 60
#define SMALLEST 2048
#define SMALL 80
#define CACHED 7
#define ROOM 20000

struct record { uint64_t pointer, usable, held; };

static struct record *records;
static uint64_t random_state, count;
static size_t largest;
static int shape;
static const char *table, *result;
static volatile uint64_t request;
static volatile int built, answered;

static void add(size_t size, int held)
{
    char *pointer = malloc(size);
    if (pointer == NULL)
        abort();
    records[count++] = (struct record){(uint64_t)pointer, malloc_usable_size(pointer), (uint64_t)held};
}

/* The tcache is full after seven of a size. The small ones last: a large one that is freed empties the fast bins. */
static void free_all(void)
{
    for (uint64_t i = 0; i < CACHED; i++)
        free((void *)records[i].pointer);
    for (uint64_t i = CACHED; i < count; i++)
        if (!records[i].held && records[i].usable > SMALLEST)
            free((void *)records[i].pointer);
    for (uint64_t i = CACHED; i < count; i++)
        if (!records[i].held && records[i].usable <= SMALLEST)
            free((void *)records[i].pointer);
}

static void build(void)
{
    for (int i = 0; i < CACHED; i++)
        add(SMALL, 0);
    for (size_t i = 0; i < HOLES; i++) {
        add(between(&random_state, 100, 1000), 1);
        add((between(&random_state, SMALLEST, largest) & ~(size_t)1023) + 16 * i, 0);
        if (shape == 1 && draw(&random_state) % 3 == 0)
            add(SMALL, 0);
    }
    add(100, 1);
    if (shape == 1)
        add(SMALL, 0);
    void *volatile room = malloc(ROOM);
    free(room); /* the top chunk is at least so large */
    free_all();
    write_file(table, records, count * sizeof *records);
    built = 1;
}

static void read_request(void)
{
    char text[32] = {0};
    if (read(0, text, sizeof text - 1) <= 0)
        _exit(0);
    request = strtoull(text, NULL, 10);
}

static void answer(void)
{
    struct mallinfo2 before = mallinfo2();
    uint64_t end = (uint64_t)sbrk(0);
    char *pointer = malloc(request);
    uint64_t new_end = (uint64_t)sbrk(0);
    struct mallinfo2 after = mallinfo2();
    uint64_t found[] = {(uint64_t)pointer, malloc_usable_size(pointer), after.arena - before.arena, new_end - end,
                        after.hblkhd - before.hblkhd};
    write_file(result, found, sizeof found);
    answered = 1;
}

static void *build_and_answer(void *argument)
{
    build();
    while (request == 0)
        usleep(1000);
    answer();
    return argument;
}

static void wait_for(volatile int *flag)
{
    while (!*flag)
        usleep(1000);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    random_state = seeded(strtoull(argv[1], NULL, 10));
    shape = atoi(argv[3]);
    largest = strtoull(argv[4], NULL, 10);
    table = argv[5];
    result = argv[6];
    records = pages(4 * HOLES * sizeof *records);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (shape == 2)
        block_break();
    pthread_t thread;
    if (atoi(argv[2]) == 0)
        build();
    else if (pthread_create(&thread, NULL, build_and_answer, NULL) == 0)
        wait_for(&built);
    read_request();
    if (atoi(argv[2]) == 0)
        answer();
    wait_for(&answered);
    park();
}
