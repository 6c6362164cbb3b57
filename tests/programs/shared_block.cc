/* shared_block KIND SIZE HEADS: lost memory that is large in one place.
 *
 * table: HEADS lost pairs of blocks, each with a pointer to one lost block of SIZE pointers. circle: a lost circle of
 * HEADS std::shared_ptr objects of 64 KiB each, whose words all differ. */
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>

struct Pair {
    Pair *other;
    void *table;
    char rest[2000];
};

struct Link {
    std::shared_ptr<Link> next;
    std::unique_ptr<char[]> rest;
};

__attribute__((noinline)) static void table(long size, long heads)
{
    void **shared = static_cast<void **>(malloc(size * sizeof *shared));
    void *small = calloc(1, 40);
    for (long at = 0; at < size; at++)
        shared[at] = small;
    for (long head = 0; head < heads; head++) {
        Pair *one = static_cast<Pair *>(calloc(1, sizeof *one)), *other = static_cast<Pair *>(calloc(1, sizeof *other));
        one->other = other, other->other = one;
        one->table = other->table = shared;
    }
    auto counted = std::make_shared<Link>();
    counted->next = counted;
}

struct Large {
    std::shared_ptr<Large> next;
    uint64_t rest[8100];
};

static std::shared_ptr<Large> filled(uint64_t &state)
{
    auto made = std::make_shared<Large>();
    for (uint64_t &word : made->rest) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        word = state | 1ULL << 63;
    }
    return made;
}

__attribute__((noinline)) static void circle(long heads)
{
    uint64_t state = 1;
    auto first = filled(state), last = first;
    for (long head = 1; head < heads; head++) {
        last->next = filled(state);
        last = last->next;
    }
    last->next = first;
}

__attribute__((noinline)) static void wipe()
{
    volatile char stack[200000];
    memset(const_cast<char *>(stack), 0, sizeof stack);
}

int main(int, char **arguments)
{
    if (arguments[1] == std::string("table"))
        table(atol(arguments[2]), atol(arguments[3]));
    else
        circle(atol(arguments[3]));
    wipe();
    pause();
}
