/* Containers of C++ with random contents: prints a row for each of their blocks (what it is, address), then pauses.

   containers SEED ROUNDS: a container of each kind in static data, in blocks and on the stack; with ROUNDS more than 0 they
   grow, shrink, are moved and thrown away that often. What a block is comes from the containers' own calls of their
   allocators. The rows are kept as complements, so that they point to nothing. */
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

struct Row {
  uintptr_t hidden;
  const char *what;
};

constexpr size_t ROWS = 1 << 21;
Row rows[ROWS];

/* Linear probing; a row that was given up keeps its place. */
Row *row_of(void *block) {
  uintptr_t hidden = ~reinterpret_cast<uintptr_t>(block);
  size_t place = (hidden * 0x9e3779b97f4a7c15u) >> 43;
  while (rows[place].hidden != 0 && rows[place].hidden != hidden) place = (place + 1) % ROWS;
  rows[place].hidden = hidden;
  return &rows[place];
}

const char *now = nullptr;

struct Items { static constexpr const char *name = "vector", *other = "vector"; };
struct Text { static constexpr const char *name = "string", *other = "string"; };
struct Sorted { static constexpr const char *name = "map", *other = "map"; };
struct Linked { static constexpr const char *name = "list", *other = "list"; };
struct Hashed { static constexpr const char *name = "unordered", *other = "buckets"; };
struct Ends { static constexpr const char *name = "deque", *other = "deque map"; };
struct Counted { static constexpr const char *name = "make_shared", *other = "make_shared"; };

template <class T, class Kind>
struct Told {
  using value_type = T;
  template <class U>
  struct rebind {
    using other = Told<U, Kind>;
  };
  Told() = default;
  template <class U>
  Told(const Told<U, Kind> &) {}
  T *allocate(size_t count) {
    void *block = std::malloc(count * sizeof(T));
    row_of(block)->what = std::is_pointer<T>::value ? Kind::other : Kind::name;
    return static_cast<T *>(block);
  }
  void deallocate(T *block, size_t) {
    row_of(block)->what = nullptr;
    std::free(block);
  }
  template <class U>
  bool operator==(const Told<U, Kind> &) const { return true; }
  template <class U>
  bool operator!=(const Told<U, Kind> &) const { return false; }
};

using String = std::basic_string<char, std::char_traits<char>, Told<char, Text>>;
template <class T> using Vector = std::vector<T, Told<T, Items>>;
template <class T> using List = std::list<T, Told<T, Linked>>;
template <class T> using Deque = std::deque<T, Told<T, Ends>>;
template <class K, class V> using Map = std::map<K, V, std::less<K>, Told<std::pair<const K, V>, Sorted>>;
template <class K> using Set = std::multiset<K, std::less<K>, Told<K, Sorted>>;
template <class K, class V>
using Table = std::unordered_map<K, V, std::hash<K>, std::equal_to<K>, Told<std::pair<const K, V>, Hashed>>;
template <class K> using Keys = std::unordered_multiset<K, std::hash<K>, std::equal_to<K>, Told<K, Hashed>>;

struct Base {
  virtual ~Base() {}
  long weight = 7;
};
struct Other {
  virtual ~Other() {}
  long height = 9;
};
template <class T>
struct Both : Base, Other {
  T held{};
};
struct Virtual : virtual Base {
  long more = 3;
};
struct Plain {
  long numbers[6];
};

std::mt19937_64 chance;

size_t upto(size_t most) { return chance() % (most + 1); }

String text() {
  String made(upto(90), 'x');
  for (auto &letter : made) letter = static_cast<char>('a' + upto(25));
  return made;
}

struct All {
  String one, two;
  Vector<int> numbers;
  Vector<String> texts;
  Vector<Vector<double>> nested;
  List<long> links;
  List<String> linked_texts;
  Deque<long> ends;
  Deque<Plain> large;
  Map<long, String> by_number;
  Map<int, List<int>> lists;
  Set<char> letters;
  Table<long, long> table;
  Table<int, String> named;
  Keys<long> keys;
  Base *object = nullptr;
  std::shared_ptr<Plain> counted, held;

  void fill(size_t most) {
    one = text(), two = text() + text();
    for (size_t i = upto(most); i > 0; i--) numbers.push_back(static_cast<int>(chance()));
    for (size_t i = upto(most); i > 0; i--) texts.push_back(text());
    for (size_t i = upto(most); i > 0; i--) nested.emplace_back(upto(40), 1.5);
    for (size_t i = upto(most); i > 0; i--) links.push_front(static_cast<long>(upto(100)));
    for (size_t i = upto(most); i > 0; i--) linked_texts.push_back(text());
    for (size_t i = upto(most * 9); i > 0; i--) i % 3 ? ends.push_back(i) : ends.push_front(i);
    for (size_t i = upto(most); i > 0; i--) large.push_back(Plain());
    for (size_t i = upto(most); i > 0; i--) by_number[static_cast<long>(upto(1000))] = text();
    for (size_t i = upto(most / 4); i > 0; i--) lists[static_cast<int>(upto(99))].push_back(static_cast<int>(upto(9)));
    for (size_t i = upto(most); i > 0; i--) letters.insert(static_cast<char>('a' + upto(25)));
    for (size_t i = upto(most); i > 0; i--) table[static_cast<long>(chance())] = 5;
    for (size_t i = upto(most); i > 0; i--) named[static_cast<int>(upto(1000))] = text();
    for (size_t i = upto(most); i > 0; i--) keys.insert(static_cast<long>(upto(30)));
    counted = std::allocate_shared<Plain>(Told<Plain, Counted>());
    now = "object";
    Plain *plain = new Plain();
    now = "shared_ptr";
    held = std::shared_ptr<Plain>(plain);
    now = "object";
    switch (upto(3)) {
      case 0: object = new Base(); break;
      case 1: object = new Both<int>(); break;
      case 2: object = new Both<std::pair<long, char>>(); break;
      default: object = new Virtual(); break;
    }
    now = nullptr;
  }
  ~All() { delete object; }
};

All in_static;

}  // namespace

void *operator new(size_t size) {
  void *block = std::malloc(size);
  if (now != nullptr) row_of(block)->what = now;
  return block;
}
void operator delete(void *block) noexcept {
  if (block != nullptr) row_of(block)->what = nullptr;
  std::free(block);
}
void operator delete(void *block, size_t) noexcept { operator delete(block); }

/* The vtables' objects, by the C++ library's own names. */
static void tell_class(const All &all) {
  char *name = abi::__cxa_demangle(typeid(*all.object).name(), nullptr, nullptr, nullptr);
  std::fprintf(stderr, "class %p %s\n", dynamic_cast<void *>(all.object), name);
  std::free(name);
}

/* Blocks that belong to nobody's container, filled with whatever looks like one. */
static void distract() {
  static uintptr_t *blocks[300];
  for (size_t i = 0; i < 300; i++) {
    size_t words = 3 + upto(60);
    blocks[i] = static_cast<uintptr_t *>(std::malloc(words * 8));
    for (size_t j = 0; j < words; j++) {
      uintptr_t *other = blocks[upto(i)];
      uintptr_t values[] = {chance(), upto(64), reinterpret_cast<uintptr_t>(other), reinterpret_cast<uintptr_t>(other + upto(9))};
      blocks[i][j] = values[upto(3)];
    }
  }
}

static void run(unsigned long rounds, size_t most) {
  All on_stack;
  All *in_blocks[24] = {};
  in_static.fill(most);
  on_stack.fill(most);
  for (auto &all : in_blocks) all = new All(), all->fill(upto(most));
  for (unsigned long i = 0; i < rounds; i++) {
    All *&one = in_blocks[upto(23)], *&other = in_blocks[upto(23)];
    switch (upto(5)) {
      case 0: delete one; one = new All(); one->fill(upto(most)); break;
      case 1: std::swap(one->texts, other->texts); std::swap(one->ends, other->ends); break;
      case 2: if (!one->texts.empty()) one->texts.pop_back(); if (!one->nested.empty()) one->nested.pop_back(); break;
      case 3: one->by_number.clear(); one->table.clear(); one->ends.clear(); break;
      case 4: one->links.sort(); one->keys.rehash(upto(500)); one->numbers.shrink_to_fit(); break;
      default: if (!one->large.empty()) one->large.pop_front(); one->two += text(); break;
    }
  }
  distract();
  tell_class(in_static), tell_class(on_stack);
  for (auto *all : in_blocks) tell_class(*all);
  for (auto &row : rows)
    if (row.what != nullptr) std::fprintf(stderr, "block %p %s\n", reinterpret_cast<void *>(~row.hidden), row.what);
  std::fflush(stderr);
  pause();
}

int main(int, char **arguments) {
  chance.seed(std::strtoul(arguments[1], nullptr, 0));
  run(std::strtoul(arguments[2], nullptr, 0), 60);
}
