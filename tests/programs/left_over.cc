// What containers and counts say is no longer there: left_over KIND COUNT, of `vector` (objects that were taken from one and
// never deleted: their addresses are left behind its last item), `kept` (the same, still in the vector), and `weak`
// (objects of std::make_shared of which only a std::weak_ptr is left) and `owned` (the same with a std::shared_ptr).
#include <cstdlib>
#include <cstring>
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

static void use(const std::string &kind, int count) {
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
