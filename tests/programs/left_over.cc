// What containers and counts say is no longer there: left_over KIND COUNT, of `vector` (objects that were taken from one and
// never deleted: their addresses are left behind its last item), `kept` (the same, still in the vector), and `weak`
// (objects of std::make_shared of which only a std::weak_ptr is left) and `owned` (the same with a std::shared_ptr), and
// `linked` (at most 200, lost: their addresses are left in the memory of the dynamic linker's first table of mappings),
// `tail` (at most 1000, lost: their addresses are left where malloc gave nodes of a std::map more than was asked for) and
// `end` (the same in the last word that may have been asked for), and `deque` (blocks of 512 bytes, lost: they reuse the
// freed nodes of a deque, whose array of pointers still has their addresses).
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

struct Job {
    char payload[40000];
    Job() { memset(payload, 1, sizeof payload); }
};

std::vector<Job *> pending;
std::map<int, std::weak_ptr<Job>> cache;
std::vector<std::shared_ptr<Job>> owners;
std::vector<void *> kept;

typedef std::array<char, 512> Record;
std::deque<Record> queue;

static void replace_nodes(int count) {
    Record record;
    record.fill(1);
    for (int pushed = 0; pushed < count + 50; pushed++) queue.push_back(record);
    while (queue.size() > 50) queue.pop_front();
    static void *volatile last;
    for (int lost = 0; lost < count; lost++) last = memset(malloc(sizeof record), 2, sizeof record);
    last = nullptr;
}

static void link(int count) {
    void **addresses = static_cast<void **>(calloc(count, sizeof(void *)));
    for (int left = 0; left < count; left++) addresses[left] = new Job;
    // Some of what is free is taken for other things meanwhile.
    void **tables[16];
    for (void **&table : tables) {
        table = static_cast<void **>(malloc(2300));
        for (int left = 0; left < count; left++) table[60 + left] = addresses[left];
        kept.push_back(malloc(24));
    }
    memset(addresses, 0, count * sizeof(void *));
    free(addresses);
    for (void **table : tables) free(table);
    dlopen("libresolv.so.2", RTLD_NOW);
}

const int SMALL = 200, MOST = 1000;
std::map<long, long> table;
static void **small[SMALL], **larger[MOST];

// Blocks of 72 bytes become nodes of 48, for which malloc gives 56 elsewhere: the rest is too little for a block.
static void reuse(int count, int word) {
    for (int left = 0; left < count; left++) {
        larger[left] = static_cast<void **>(malloc(72));
        kept.push_back(malloc(24));
    }
    for (void **&block : small) {
        block = static_cast<void **>(malloc(56));
        block[6] = reinterpret_cast<void *>(0x4d454d5f4e414944);
        kept.push_back(malloc(24));
    }
    for (int left = 0; left < count; left++) larger[left][word] = new Job;
    for (int left = 0; left < count; left++) free(larger[left]);
    // malloc sorts what is free by its size when it is asked for much; a compiler leaves out what nobody has.
    static void *volatile much;
    much = malloc(5000);
    for (void **block : small) free(block);
    memset(larger, 0, sizeof larger);
    memset(small, 0, sizeof small);
    for (int left = 0; left < SMALL + count; left++) table[left] = left;
}

static void use(const std::string &kind, int count) {
    if (kind == "linked") link(count);
    if (kind == "deque") replace_nodes(count);
    if (kind == "tail" || kind == "end") reuse(count, kind == "tail" ? 7 : 6);
    for (int left = 0; left < count; left++) {
        if (kind == "vector" || kind == "kept") pending.push_back(new Job);
        if (kind == "weak" || kind == "owned") {
            auto made = std::make_shared<Job>();
            cache[left] = made;
            if (kind == "owned") owners.push_back(made);
        }
    }
    while (kind == "vector" && !pending.empty()) pending.pop_back();
}

static void spoil() {
    volatile char room[4000];
    memset(const_cast<char *>(room), 0, sizeof room);
}

int main(int, char **arguments) {
    use(arguments[1], atoi(arguments[2]));
    spoil();
    char byte;
    return read(0, &byte, 1) < 0;
}
