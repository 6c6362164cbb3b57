// A search index in C++ whose memory grows: docs/tutorial-cxx.md finds out why.
//
// It reads documents, keeps for each word the documents that contain it, answers queries, and keeps their answers.
// examples/index_fixed.cc is the same after the tutorial.
// Usage: index [--documents=N] [--seconds=3600]. To compile it: g++ -O1 -g -o index examples/index.cc
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

struct Posting {
  uint32_t document, position;
};

struct Answer {
  virtual ~Answer() = default;
  std::string query;
  std::vector<Posting> postings;
};

struct Parser {
  virtual ~Parser() = default;
  std::string text;
};

struct Index {
  std::unordered_map<std::string, std::vector<Posting>> words;
  std::unordered_map<std::string, std::unique_ptr<Answer>> answers;
};

Index library;
std::mt19937 randomness(1);

std::string word() { return "word" + std::to_string(randomness() % 4000); }

void read_document(uint32_t document) {
  auto *parser = new Parser;
  for (int count = 0; count < 100; ++count) parser->text += word() + " ";
  size_t start = 0;
  for (uint32_t position = 0; start < parser->text.size(); ++position) {
    size_t end = parser->text.find(' ', start);
    library.words[parser->text.substr(start, end - start)].push_back({document, position});
    start = end + 1;
  }
}

void answer(int number) {
  auto answer = std::make_unique<Answer>();
  answer->query = word() + " AND " + word() + " user:" + std::to_string(number);
  answer->postings.reserve(500);
  for (const Posting &posting : library.words[word()])
    if (answer->postings.size() < 20) answer->postings.push_back(posting);
  library.answers[answer->query] = std::move(answer);
}

int main(int argc, char **argv) {
  int documents = 10000, seconds = 3600;
  for (int place = 1; place < argc; ++place) {
    sscanf(argv[place], "--documents=%d", &documents);
    sscanf(argv[place], "--seconds=%d", &seconds);
  }
  alarm(seconds);
  for (int document = 0; document < documents; ++document) read_document(document);
  for (int number = 0; number < documents; ++number) answer(number);
  puts("ready");
  fflush(stdout);
  pause();
}
