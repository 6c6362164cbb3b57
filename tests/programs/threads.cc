// threads SEED: threads that come and go, and hand blocks to one another: new and delete of every form (sized, aligned, of
// arrays, without exceptions), strings, maps and shared pointers. It prints a sum over all that the blocks held, which
// depends on SEED alone.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

struct alignas(256) Wide {
    uint64_t words[40];
};

constexpr int THREADS = 8, ROUNDS = 40, STEPS = 400;

std::mutex guard;
std::vector<std::unique_ptr<std::string>> handed;
std::atomic<uint64_t> sum{0};

uint64_t next(uint64_t &state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

void work(uint64_t state) {
    std::map<uint64_t, std::shared_ptr<std::string>> kept;
    uint64_t mine = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t value = next(state);
        Wide *wide = new Wide;
        if (reinterpret_cast<uintptr_t>(wide) % 256 != 0) abort();
        wide->words[value % 40] = value;
        mine += wide->words[value % 40];
        delete wide;
        char *bytes = new (std::nothrow) char[value % 5000 + 1];
        bytes[value % 5000] = static_cast<char>(value);
        mine += static_cast<unsigned char>(bytes[value % 5000]);
        delete[] bytes;
        void *sized = ::operator new(value % 900 + 1);
        ::operator delete(sized, value % 900 + 1);
        void *both = ::operator new(value % 700 + 1, std::align_val_t{64});
        ::operator delete(both, value % 700 + 1, std::align_val_t{64});
        kept[value % 50] = std::make_shared<std::string>(value % 300, static_cast<char>('a' + value % 26));
        if (value % 8 == 0) {
            auto text = std::make_unique<std::string>(value % 2000, 'x');
            mine += text->size();
            std::lock_guard<std::mutex> held(guard);
            handed.push_back(std::move(text));
            // What another thread has allocated goes here.
            if (handed.size() > 20) handed.erase(handed.begin());
        }
    }
    for (const auto &[key, text] : kept) mine += key * text->size();
    sum += mine;
}

}  // namespace

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
    for (int round = 0; round < ROUNDS; round++) {
        std::vector<std::thread> threads;
        for (int number = 0; number < THREADS; number++) threads.emplace_back(work, seed * 7919 + round * 100 + number);
        for (auto &thread : threads) thread.join();
    }
    printf("%llu\n", static_cast<unsigned long long>(sum.load()));
    return 0;
}
