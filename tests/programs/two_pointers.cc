// Variables that have two pointers into their memory, so that no single block retains it: two_pointers ITEMS. Prints
// "NAME BYTES" of each, by malloc's own count, and waits.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

struct Job {
    Job *next, *previous;
    char body[180];
};

// Read by gdbheap: the compiler must not drop or rename them.
extern "C" {
struct { long count; Job *first, *last; } jobs;
}
std::unordered_map<int, std::vector<char>> prices;
std::map<int, std::string> names;
thread_local std::list<std::string> trace;

static size_t used() {
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

int main(int argc, char **argv) {
    int items = argc > 1 ? atoi(argv[1]) : 10000;
    auto *ring = reinterpret_cast<Job *>(&jobs.first);
    ring->next = ring->previous = ring;
    size_t before = used();
    auto tell = [&](const char *name) {
        fprintf(stderr, "%s %zu\n", name, used() - before);
        before = used();
    };
    for (int i = 0; i < items; i++) {
        auto *job = static_cast<Job *>(calloc(1, sizeof(Job)));
        job->next = ring;
        job->previous = ring->previous;
        ring->previous->next = job;
        ring->previous = job;
        jobs.count++;
    }
    tell("jobs");
    for (int i = 0; i < items; i++) prices[i * 7].assign(400, 'p');
    tell("prices");
    for (int i = 0; i < items; i++) names[(i * 7919) % 1000003] = std::string(90, 'n');
    tell("names");
    for (int i = 0; i < items; i++) trace.push_back(std::string(60, 't'));
    tell("trace");
    char byte;
    return read(0, &byte, 1) < 0;
}
