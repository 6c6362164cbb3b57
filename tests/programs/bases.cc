// bases COUNT TABLE: objects whose second base is their last eight bytes, which overlap the next chunk's header, and a
// vector of pointers to these bases. The table has the objects' addresses.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

struct Base {
    virtual ~Base() {}
    char bytes[3000];
};

struct Observer {
    virtual ~Observer() {}
    virtual void on() = 0;
};

struct View : Base, Observer {
    void on() override {}
};

static std::vector<Observer *> observers;

int main(int, char **words)
{
    FILE *table = std::fopen(words[2], "w");
    for (long left = std::atol(words[1]); left > 0; left--) {
        View *view = new View;
        observers.push_back(view);
        std::fprintf(table, "%lu\n", (unsigned long)view);
    }
    std::fclose(table);
    for (;;)
        pause();
}
