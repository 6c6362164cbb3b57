// Nodes of a tree with shared pointers to their parents: nothing of a scene that was closed is freed.
#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

struct SceneNode {
    std::shared_ptr<SceneNode> parent;
    std::vector<std::shared_ptr<SceneNode>> children;
    std::string title;
    double transform[16];
};

static void show(int number) {
    auto root = std::make_shared<SceneNode>();
    for (int child = 0; child < 400; child++) {
        auto node = std::make_shared<SceneNode>();
        node->parent = root;
        node->title = "scene " + std::to_string(number) + ", node number " + std::to_string(child);
        root->children.push_back(node);
    }
}

int main() {
    for (int number = 0; number < 300; number++)
        show(number);
    puts("READY");
    fflush(stdout);
    pause();
}
