/* Objects of C++ classes with vtables: prints class and address of each, then pauses. */
#include <unistd.h>
#include <cstdio>

namespace shapes {
struct Circle {
  virtual ~Circle() {}
  void *peers[7] = {};
};
}  // namespace shapes

struct Plain : shapes::Circle {
  virtual void turn() {}
};

int main() {
  for (int i = 0; i < 20; i++) {
    shapes::Circle *circle = new shapes::Circle, *plain = new Plain;
    for (auto &peer : circle->peers) peer = plain;
    for (auto &peer : plain->peers) peer = circle;
    std::fprintf(stderr, "shapes::Circle %p\nPlain %p\n", (void *)circle, (void *)plain);
  }
  std::fflush(stderr);
  pause();
}
