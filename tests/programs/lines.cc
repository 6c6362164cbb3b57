// Lines of inlined functions, as the compiler knows them: lines [PAIRS]
//
// It prints on standard error, for each call of probe(), where the call is in the code of the file, and the lines of it and of the calls
// that were inlined around it, innermost first. Then, for each line of standard input, it maps memory and says where.
#include <cstdio>
#include <cstdlib>
#include <link.h>
#include <string>
#include <sys/mman.h>

#define INLINED static inline __attribute__((always_inline))
#define APART __attribute__((noinline))

static unsigned long bias;

APART static void *probe(int size, int innermost, int middle, int outer) {
    unsigned long place = (unsigned long)__builtin_return_address(0) - bias;
    std::fprintf(stderr, "%lx %d %d %d\n", place - 1, innermost, middle, outer);
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

namespace deep {
INLINED void *innermost(int size, int middle, int outer) {
    void *found = probe(size, __LINE__, middle, outer);
    return (char *)found + 1;
}

template <typename T> struct Middle {
    INLINED void *call(int size, int outer) {
        void *found = innermost(size, __LINE__, outer);
        return (char *)found + sizeof(T);
    }
};
}

APART void *outer(int size) {
    void *found = deep::Middle<std::string>::call(size, __LINE__);
    return (char *)found + 1;
}

APART void *alone(int size) {
    void *found = probe(size, 0, 0, __LINE__);
    return (char *)found + 1;
}

int main(int count, char **arguments) {
    auto first = [](dl_phdr_info *one, size_t, void *) { bias = one->dlpi_addr; return 1; };
    dl_iterate_phdr(first, nullptr);
    void *kept = nullptr;
    for (int pair = 0; pair < (count > 1 ? std::atoi(arguments[1]) : 1); pair++)
        kept = (char *)outer(4096) + (long)alone(4096);
    for (int line = getchar(); line != EOF; line = getchar())
        kept = outer(1 << 20);
    return kept == nullptr;
}
