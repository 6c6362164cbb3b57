/* containers SEED TABLE: containers that were lost with what is in them, and some that are held. */
#include "planted.h"
#include <cstdlib>
#include <list>
#include <memory>
#include <new>
#include <string>
#include <vector>

// Every block of these containers is noted; LOST says as what, as long as something is lost.
static bool is_lost;
static uint64_t group;
static bool is_head;

template <typename T> struct Noted {
    using value_type = T;
    Noted() = default;
    template <typename U> Noted(const Noted<U> &) {}
    T *allocate(size_t count) {
        // One word more: LeakSanitizer's own blocks have no heads, and the end of a full vector would be the next block.
        size_t size = count * sizeof(T) + sizeof(void *);
        void *block = planted_block(size);
        if (is_lost) planted_note(block, size, is_head ? DIRECT : INDIRECT, group);
        return static_cast<T *>(block);
    }
    void deallocate(T *block, size_t) { free(block); }
    template <typename U> bool operator==(const Noted<U> &) const { return true; }
    template <typename U> bool operator!=(const Noted<U> &) const { return false; }
};

using Row = std::vector<long, Noted<long>>;
using Rows = std::vector<Row, Noted<Row>>;

struct Node { Node *next; Rows rows; };

std::vector<Rows *> held;

template <typename T> static T *made(enum planted_kind kind) {
    void *block = planted_block(sizeof(T));
    if (is_lost) planted_note(block, sizeof(T), kind, group);
    return new (block) T();
}

static Rows *rows() {
    is_head = false;
    Rows *found = made<Rows>(DIRECT);
    size_t count = planted_between(1, 30);
    // reserve() so that no block is given back: a noted one must stay.
    found->reserve(count);
    for (size_t i = 0; i < count; i++) {
        found->emplace_back();
        found->back().reserve(planted_between(1, 100));
        found->back().push_back(1);
    }
    return found;
}

struct Base { virtual ~Base() {} long one = 1; };
struct Other { virtual ~Other() {} long two = 2; };
struct Derived : Base, Other { void *more = nullptr; };

Other *seconds[32];

static void plant() {
    is_lost = true;
    for (size_t left = planted_between(2, 12); left > 0; left--) {
        group = planted_group();
        rows();
    }
    // Only its second base is held: a word that points into the middle.
    for (Other *&second : seconds) {
        group = planted_group();
        second = made<Derived>(BY_LAYOUT);
    }
    is_lost = false;
    held.reserve(8);
    for (size_t left = planted_between(1, 8); left > 0; left--) held.push_back(rows());
}

int main(int argc, char **argv) {
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
