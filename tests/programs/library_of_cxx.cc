// Containers of C++ in static variables: a library whose fill(SEED) its program calls, or with -DPROGRAM a program of its
// own, library_of_cxx SEED. Prints "NAME BLOCKS" of each variable; the program waits for a line then.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Job {
    virtual ~Job() = default;
    long data[12] = {};
};

static std::map<long, std::string> table;
static std::vector<std::string> names;
static std::vector<std::unique_ptr<Job>> jobs;

extern "C" void fill(long seed) {
    srand(static_cast<unsigned>(seed));
    for (int left = 60000 + rand() % 20000; left > 0; left--) {
        table[left] = std::string(static_cast<size_t>(30 + rand() % 30), 'x');
        names.push_back(std::string(static_cast<size_t>(60 + rand() % 30), 'y'));
        if (left % 4 == 0) jobs.emplace_back(new Job);
    }
    fprintf(stderr, "table %zu\nnames %zu\njobs %zu\n", 2 * table.size(), names.size() + 1, jobs.size() + 1);
    fflush(stderr);
}

#ifdef PROGRAM
int main(int count, char **arguments) {
    fill(count > 1 ? atol(arguments[1]) : 1);
    return getchar() == EOF;
}
#endif
