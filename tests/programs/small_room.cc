// Many short strings, each with room for more than it holds: small_room COUNT ROOM. Prints the bytes that they could give
// back, and shrinks them at a line.

#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <string>
#include <unistd.h>
#include <vector>

static std::vector<std::string> names;

int main(int argc, char **argv) {
    size_t count = argc > 1 ? strtoul(argv[1], nullptr, 10) : 300000, room = argc > 2 ? strtoul(argv[2], nullptr, 10) : 120;
    size_t spare = 0;
    names.reserve(count);
    for (size_t number = 0; number < count; number++) {
        std::string text;
        text.reserve(room);
        text += "customer of the shop with the number ";
        text += std::to_string(number);
        spare += text.capacity() - text.size();
        names.push_back(std::move(text));
    }
    fprintf(stderr, "spare %zu\n", spare);
    char byte;
    if (read(0, &byte, 1) < 0) return 1;
    for (std::string &one : names)
        one.shrink_to_fit();
    malloc_trim(0);
    return read(0, &byte, 1) < 0;
}
