/* nothing_lost SEED TABLE: containers of the standard library that are held, in static data. */
#include "planted.h"
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

std::map<int, std::string> *ordered;
std::unordered_map<int, std::vector<std::string>> *hashed;
std::list<std::unique_ptr<long>> *owned;
std::deque<std::shared_ptr<int>> *shared;

static void plant() {
    ordered = new std::map<int, std::string>;
    hashed = new std::unordered_map<int, std::vector<std::string>>;
    owned = new std::list<std::unique_ptr<long>>;
    shared = new std::deque<std::shared_ptr<int>>;
    for (size_t left = planted_between(50, 900); left > 0; left--) {
        int key = static_cast<int>(planted_between(0, 500));
        (*ordered)[key] = std::string(planted_between(1, 90), 'x');
        (*hashed)[key].push_back(std::string(planted_between(1, 90), 'y'));
        owned->push_back(std::make_unique<long>(key));
        shared->push_back(std::shared_ptr<int>(new int(key)));
        if (planted_between(0, 3) == 0) ordered->erase(ordered->begin());
        if (planted_between(0, 3) == 0) owned->pop_front();
    }
}

int main(int argc, char **argv) {
    planted_begin(argc, argv);
    planted_apart(plant);
    return planted_end();
}
