/* churn SEED: allocates and frees blocks as fast as it can, for ever. */
#include "target.h"

#define SLOTS 500

int main(int count, char **arguments)
{
    static void *held[SLOTS];
    uint64_t state = seeded(count > 1 ? strtoull(arguments[1], NULL, 10) : 1);
    for (;;) {
        size_t place = draw(&state) % SLOTS;
        free(held[place]);
        held[place] = malloc(between(&state, 1, 30000));
        if (held[place] == NULL)
            abort();
    }
}
