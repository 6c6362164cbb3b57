/* threads_and_pointers SEED TABLE: std::shared_ptr in circles, lost in several threads at once; std::thread. */
#include "planted.h"
#include <memory>
#include <mutex>
#include <new>

struct Partner {
    std::shared_ptr<Partner> other;
    char data[56];
};

static std::mutex noting;

template <typename T> struct Noted {
    using value_type = T;
    uint64_t group;
    explicit Noted(uint64_t of) : group(of) {}
    template <typename U> Noted(const Noted<U> &from) : group(from.group) {}
    T *allocate(size_t count) {
        void *block = planted_block(count * sizeof(T));
        // A shared_ptr has the address of what follows its counts: a word into the middle, and that of the counts.
        planted_note(block, count * sizeof(T), CYCLE, group);
        return static_cast<T *>(block);
    }
    void deallocate(T *, size_t) {}
    template <typename U> bool operator==(const Noted<U> &) const { return true; }
    template <typename U> bool operator!=(const Noted<U> &) const { return false; }
};

static void circle() {
    std::lock_guard<std::mutex> lock(noting);
    Noted<Partner> noted(planted_group());
    auto first = std::allocate_shared<Partner>(noted), last = first;
    for (size_t left = planted_between(1, 20); left > 0; left--) {
        auto next = std::allocate_shared<Partner>(noted);
        last->other = next;
        last = next;
    }
    last->other = first;
}

static void plant() {
    for (size_t left = planted_between(2, 20); left > 0; left--) circle();
}

int main(int argc, char **argv) {
    planted_begin(argc, argv);
    for (size_t left = planted_between(1, 5); left > 0; left--) planted_apart(plant);
    return planted_end();
}
