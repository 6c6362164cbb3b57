// Readers that have read little of full buffers, and arenas: what holds them has the three pointers of a std::vector.
// cursors SEED COUNT.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

struct Reader {
    long number;
    char *begin, *cursor, *end;
    long total;
};

struct Connection {
    Reader reader;
    std::string name;
};

std::vector<std::unique_ptr<Connection>> connections;

int main(int, char **arguments) {
    std::mt19937 random(atoi(arguments[1]));
    for (int left = atoi(arguments[2]); left > 0; left--) {
        connections.emplace_back(new Connection);
        Connection &one = *connections.back();
        long size = 50000 + random() % 10000;
        char *data = static_cast<char *>(malloc(size));
        for (long at = 0; at < size; at++) data[at] = static_cast<char>(random());
        one.reader = {left, data, data + 50 + random() % 50, data + size, size};
        one.name = "the name of connection " + std::to_string(left);
    }
    char byte;
    return read(0, &byte, 1) < 0;
}
