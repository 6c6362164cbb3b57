// A helper thread builds and frees a lot, then ends; a small result pins its arena, which the main thread cannot use
// (YosysHQ/yosys#5664).
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static std::vector<std::unique_ptr<std::string>> kept;

static void pass(int count)
{
	std::vector<std::string *> nodes;
	for (int i = 0; i < count; i++)
		nodes.push_back(new std::string(300, 'a' + i % 26));
	kept.push_back(std::make_unique<std::string>(500, 'r'));  // the result, allocated last
	for (auto node : nodes)
		delete node;
}

int main()
{
	std::thread helper(pass, 200000);
	helper.join();
	std::vector<std::string *> design;
	for (int i = 0; i < 200000; i++)
		design.push_back(new std::string(300, 'd'));
	puts("READY");
	fflush(stdout);
	getchar();
}
