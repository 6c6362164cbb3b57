/* cycles SEED COUNT WORDS TABLE: keeps some nodes and loses the others, in circles of shared pointers. A node has WORDS words
   behind its pointer. The vectors that had the nodes are given back, and later nodes lie where they were. The table has a
   line for each node: lost or kept, and the address and the usable size of its block. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <malloc.h>
#include <memory>
#include <unistd.h>
#include <vector>

template <int N> struct Node {
    std::shared_ptr<Node> next;
    uint64_t words[N];
};

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static char table[64 << 20];
static size_t used;

template <int N> static std::vector<std::shared_ptr<Node<N>>> kept;

/* std::make_shared puts a table of functions and two counts before the object. */
template <int N> static void note(const char *what, const std::shared_ptr<Node<N>> &node)
{
    unsigned long block = (unsigned long)(uintptr_t)node.get() - 16;
    used += sprintf(table + used, "%s %lu %zu\n", what, block, malloc_usable_size((void *)block));
}

template <int N> __attribute__((noinline)) static void fill(uint64_t *state, size_t count)
{
    std::vector<std::shared_ptr<Node<N>>> all;
    for (size_t place = 0; place < count; place++) {
        all.push_back(std::make_shared<Node<N>>());
        if (draw(state) % 10 == 0) {
            kept<N>.push_back(all.back());
            note("kept", all.back());
        } else {
            note("lost", all.back());
            all.back()->next = all.back();
        }
    }
}

__attribute__((noinline)) static void wipe()
{
    volatile char stack[64 << 10];
    for (size_t place = 0; place < sizeof stack; place++)
        stack[place] = 0;
}

template <int N> static void run(uint64_t *state, size_t count)
{
    kept<N>.reserve(count);
    for (size_t left = count; left > 0;) {
        size_t part = draw(state) % left + 1;
        fill<N>(state, part);
        left -= part;
    }
}

int main(int, char **words)
{
    uint64_t state = strtoull(words[1], NULL, 10);
    size_t count = strtoull(words[2], NULL, 10);
    if (strcmp(words[3], "101") == 0)
        run<101>(&state, count);
    else
        run<102>(&state, count);
    int file = open(words[4], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, table, used) != (ssize_t)used)
        abort();
    close(file);
    memset(table, 0, used);
    wipe();
    for (;;)
        pause();
}
