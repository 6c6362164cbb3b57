/* steps SEED THREADS
 *
 * Rests, and does at each line what it says: "step": every thread, the first one too, allocates some blocks and frees
 * others, at random; "big BYTES": a block of that size, every page of it written; "drop": the last of those is freed;
 * "exec": the program is started anew, with no threads. After each it prints malloc_stats() and malloc_info().
 */
#include "target.h"

#define MOST 20000
#define MOST_THREADS 64

struct share { uint64_t state; void *held[MOST]; size_t count; };

static struct share *shares;
static int threads;
static pthread_barrier_t begin, done;
static char *big[MOST];
static size_t bigs;

static void add(struct share *own, size_t count, size_t largest)
{
    for (size_t i = 0; i < count && own->count < MOST; i++) {
        char *block = malloc(between(&own->state, 1, largest));
        if (block == NULL)
            abort();
        *block = 1;
        own->held[own->count++] = block;
    }
}

static void drop(struct share *own, size_t count)
{
    for (size_t i = 0; i < count && own->count > 0; i++) {
        size_t place = draw(&own->state) % own->count;
        free(own->held[place]);
        own->held[place] = own->held[--own->count];
    }
}

static void step(struct share *own)
{
    size_t count = between(&own->state, 10, 2000);
    if (draw(&own->state) % 3)
        add(own, count, draw(&own->state) % 2 ? 100 : 20000);
    drop(own, between(&own->state, 0, count));
}

static void *work(void *own)
{
    for (;;) {
        pthread_barrier_wait(&begin);
        step(own);
        pthread_barrier_wait(&done);
    }
    return NULL;
}

static void all_step(void)
{
    if (threads)
        pthread_barrier_wait(&begin);
    step(&shares[0]);
    if (threads)
        pthread_barrier_wait(&done);
}

static void add_big(size_t size)
{
    if (bigs == MOST || (big[bigs] = malloc(size)) == NULL)
        abort();
    memset(big[bigs++], 1, size);
}

static void told(void)
{
    malloc_stats();
    malloc_info(0, stderr);
}

/* Without stdio, which would allocate. */
static int line(char *text, size_t size)
{
    size_t length = 0;
    char letter;
    while (read(0, &letter, 1) == 1 && letter != '\n')
        if (length + 1 < size)
            text[length++] = letter;
    text[length] = 0;
    return length > 0;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    threads = atoi(arguments[2]);
    if (threads > MOST_THREADS)
        return 2;
    shares = pages((size_t)(threads + 1) * sizeof *shares);
    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    for (int i = 0; i <= threads; i++) {
        pthread_t thread;
        shares[i].state = seeded(strtoull(arguments[1], NULL, 10) + (uint64_t)i);
        if (i > 0 && pthread_create(&thread, NULL, work, &shares[i]))
            abort();
    }
    told();
    for (char text[64]; line(text, sizeof text);) {
        if (strcmp(text, "step") == 0)
            all_step();
        else if (strncmp(text, "big ", 4) == 0)
            add_big(strtoull(text + 4, NULL, 10));
        else if (strcmp(text, "drop") == 0)
            free(big[--bigs]);
        else if (strcmp(text, "exec") == 0)
            execl("/proc/self/exe", "steps", "7", "0", (char *)NULL);
        told();
    }
    return 0;
}
