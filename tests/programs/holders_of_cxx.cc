// Blocks of many sizes that hang on a global of C, on an object in a local variable, on a thread's variable, and on memory
// that the program mapped: holders_of_cxx SEED. Prints "NAME BLOCKS BYTES" of each holder, and waits.
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

struct Link {
    Link *next;
};

struct Chain {
    Link *first = nullptr;
    size_t blocks = 0, bytes = 0;

    void add() {
        auto *link = static_cast<Link *>(malloc(sizeof(Link) + rand() % 4000));
        link->next = first;
        first = link;
        blocks++;
        bytes += malloc_usable_size(link) + sizeof(size_t);
    }
};

struct Interpreter {
    Chain chain;
    void *unused;
};

Interpreter lctx;
thread_local Chain *own = nullptr;

class BlockCache {
  public:
    virtual ~BlockCache() = default;
    Chain chain;
};

static void fill(Chain &chain, size_t least) {
    while (chain.bytes < least) chain.add();
}

static void tell(const char *name, const Chain &chain, size_t blocks, size_t bytes) {
    fprintf(stderr, "%s %zu %zu\n", name, chain.blocks + blocks, chain.bytes + bytes);
}

static size_t size_of(void *block) { return malloc_usable_size(block) + sizeof(size_t); }

int main(int, char **arguments) {
    srand(atoi(arguments[1]));
    size_t least = 4 << 20;
    fill(lctx.chain, least);
    auto *cache = new BlockCache();
    fill(cache->chain, least);
    own = new Chain();
    fill(*own, least);
    auto *mapped = static_cast<Chain *>(mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill(*mapped, least);
    tell("lctx", lctx.chain, 0, 0);
    tell("BlockCache", cache->chain, 1, size_of(cache));
    tell("thread-local", *own, 1, size_of(own));
    tell("mapped", *mapped, 0, 0);
    char byte;
    ssize_t got = read(0, &byte, 1);
    return got < 0 || cache->chain.bytes == 0;
}
