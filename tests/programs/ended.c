/* ended SEED THREADS COUNT TABLE: threads that end, one after the other or together; the stack of each has the address of
   a list of COUNT blocks, and so has a thread-local variable of it. The table has the blocks' addresses. */
#include "target.h"

struct item {
    struct item *next;
    char text[80];
};

static __thread struct item *own;
static char table[16 << 20];
static size_t used, count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_there;

__attribute__((noinline)) static void fill(struct item *volatile *head)
{
    for (size_t place = 0; place < count; place++) {
        struct item *one = calloc(1, sizeof *one);
        one->next = *head;
        *head = one;
        pthread_mutex_lock(&lock);
        used += (size_t)sprintf(table + used, "%lu\n", (unsigned long)(uintptr_t)one);
        pthread_mutex_unlock(&lock);
    }
}

static void *work(void *nothing)
{
    struct item *volatile heads[8] = {0};
    fill(&heads[3]);
    own = heads[3];
    pthread_barrier_wait(&all_there);
    return nothing;
}

int main(int argc, char **words)
{
    (void)argc;
    uint64_t state = seeded(strtoull(words[1], NULL, 10));
    size_t threads = strtoull(words[2], NULL, 10);
    count = strtoull(words[3], NULL, 10);
    for (size_t left = threads; left > 0;) {
        size_t part = between(&state, 1, left);
        pthread_t started[64];
        pthread_barrier_init(&all_there, NULL, (unsigned)part);
        for (size_t place = 0; place < part; place++)
            pthread_create(&started[place], NULL, work, NULL);
        for (size_t place = 0; place < part; place++)
            pthread_join(started[place], NULL);
        left -= part;
    }
    write_file(words[4], table, used);
    memset(table, 0, used);
    park();
}
