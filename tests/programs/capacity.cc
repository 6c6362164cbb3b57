// Containers that hold little of what they have room for: capacity SEED COUNT. Prints what each has and uses, in bytes. At a
// line it shrinks them.
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <unistd.h>
#include <vector>

struct Record {
    long number;
    double amounts[3];
};

struct Connection {
    std::vector<char> received;
    std::vector<Record> records;
    std::string text;
    std::unordered_map<long, long> pending;
};

std::vector<std::unique_ptr<Connection>> connections;

static void tell(const char *kind, const void *block, size_t room, size_t used) {
    fprintf(stderr, "room %p %zu %zu %s\n", block, room, used, kind);
}

static void fill(Connection &one, std::mt19937 &random) {
    one.received.assign(20000 + random() % 20000, 'x');
    one.received.resize(1);
    one.records.resize(400 + random() % 400);
    one.records.resize(random() % 3);
    one.text.assign(9000 + random() % 9000, 't');
    one.text.resize(random() % 8);
    for (long key = 0; key < 1500; key++) one.pending[key] = key;
    one.pending.clear();
    if (random() % 2) one.pending[7] = 7;
}

static void tell(const Connection &one) {
    tell("vector", one.received.data(), one.received.capacity(), one.received.size());
    tell("vector", one.records.data(), one.records.capacity() * sizeof(Record), one.records.size() * sizeof(Record));
    tell("string", one.text.data(), one.text.capacity() + 1, one.text.size() + 1);
    // The array of buckets is all that a map keeps when its nodes go.
    tell("buckets", nullptr, one.pending.bucket_count() * sizeof(void *), one.pending.size() * sizeof(void *));
}

int main(int, char **arguments) {
    std::mt19937 random(atoi(arguments[1]));
    for (int left = atoi(arguments[2]); left > 0; left--) {
        connections.emplace_back(new Connection);
        fill(*connections.back(), random);
    }
    for (const auto &one : connections) tell(*one);
    char byte;
    if (read(0, &byte, 1) < 0) return 1;
    for (const auto &one : connections) {
        one->received.shrink_to_fit();
        one->records.shrink_to_fit();
        one->text.shrink_to_fit();
        one->pending.rehash(0);
    }
    malloc_trim(0);
    return read(0, &byte, 1) < 0;
}
