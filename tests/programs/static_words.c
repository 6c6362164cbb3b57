/* static_words COUNT: a static array whose first COUNT words point to some blocks. */
#include "target.h"

static void *volatile words[1 << 23];

int main(int count, char **arguments)
{
    void *blocks[1000];
    for (int number = 0; number < 1000; number++)
        blocks[number] = calloc(1, 100);
    for (long at = 0; at < atol(arguments[1]); at++)
        words[at] = blocks[at % 1000];
    pause();
    return count;
}
