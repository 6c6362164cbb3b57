// Lost objects: shared_cycles KIND COUNT, of `made` (std::make_shared), `new`, `self` (one that keeps itself) and `list`
// (children in a std::vector), which keep one another by counts, and `parent`: lost parents whose children know them.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

struct Node {
    std::shared_ptr<Node> other;
    std::vector<std::shared_ptr<Node>> children;
    Node *parent = nullptr;
    char data[20000];
    Node() { memset(data, 1, sizeof data); }
};

static void lose(const std::string &kind) {
    if (kind == "self") {
        auto one = std::make_shared<Node>();
        one->other = one;
    } else if (kind == "parent") {
        auto *one = new Node;
        one->other = std::make_shared<Node>();
        one->other->parent = one;
    } else {
        auto one = kind == "new" ? std::shared_ptr<Node>(new Node) : std::make_shared<Node>();
        auto two = kind == "new" ? std::shared_ptr<Node>(new Node) : std::make_shared<Node>();
        if (kind == "list") one->children.push_back(two);
        else one->other = two;
        two->other = one;
    }
}

static void spoil() {
    volatile char room[4000];
    memset(const_cast<char *>(room), 0, sizeof room);
}

int main(int, char **arguments) {
    for (int left = atoi(arguments[2]); left > 0; left--) lose(arguments[1]);
    spoil();
    char byte;
    return read(0, &byte, 1) < 0;
}
