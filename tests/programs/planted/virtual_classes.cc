/* virtual_classes SEED TABLE: objects of classes with virtual functions and templates, owned by each other through
 * pointers to bases, lost by the head; arrays of them, whose pointer stands after a count. */
#include "planted.h"
#include <new>

struct Shape {
    virtual ~Shape() {}
    virtual double area() const = 0;
    Shape *next = nullptr;
};

template <int N> struct Sized : Shape {
    double area() const override { return N; }
    char data[N];
};

struct Picture {
    Shape *first = nullptr;
    Picture *nested = nullptr;
};

struct Counted { ~Counted() {} long number = 0; };

Picture *held;
Counted *array;

template <typename T> static T *made(planted_kind kind, uint64_t group, bool lost) {
    void *block = planted_block(sizeof(T));
    if (lost) planted_note(block, sizeof(T), kind, group);
    return new (block) T();
}

static Shape *shape(uint64_t group, bool lost) {
    switch (planted_between(0, 3)) {
    case 0: return made<Sized<8>>(INDIRECT, group, lost);
    case 1: return made<Sized<100>>(INDIRECT, group, lost);
    case 2: return made<Sized<1000>>(INDIRECT, group, lost);
    default: return made<Sized<50>>(INDIRECT, group, lost);
    }
}

static Picture *picture(uint64_t group, bool lost, planted_kind kind) {
    Picture *found = made<Picture>(kind, group, lost);
    for (size_t left = planted_between(0, 15); left > 0; left--) {
        Shape *one = shape(group, lost);
        one->next = found->first;
        found->first = one;
    }
    if (planted_between(0, 2)) found->nested = picture(group, lost, INDIRECT);
    return found;
}

static void plant() {
    for (size_t left = planted_between(5, 40); left > 0; left--) picture(planted_group(), true, DIRECT);
    held = picture(0, false, DIRECT);
    size_t count = planted_between(2, 20);
    array = new Counted[count];
    // The count stands before the first element (Itanium C++ ABI, 2.7).
    planted_note(reinterpret_cast<size_t *>(array) - 1, count * sizeof(Counted) + sizeof(size_t), BY_LAYOUT, planted_group());
}

int main(int argc, char **argv) {
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
