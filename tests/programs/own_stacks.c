/* own_stacks SEED
 *
 * Threads with stacks of different sizes, as the C library makes them; prints each one's size. Builds with musl too.
 */
#include "target.h"

static void *rest(void *argument)
{
    park();
    return argument;
}

int main(int argc, char **argv)
{
    uint64_t random_state = seeded(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    for (int i = 0; i < 5; i++) {
        size_t size = between(&random_state, 16, 400) * 4096;
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, size);
        /* The next mapping merges with what it touches. */
        memset(pages((size_t)1 << 20), 1, (size_t)1 << 20);
        if (pthread_create(&thread, &attributes, rest, NULL) != 0)
            return 1;
        fprintf(stderr, "size %zx\n", size);
    }
    park();
}
