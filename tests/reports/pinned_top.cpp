// 150 MB of small strings are freed, but not the last one (a comment in nodejs/node#21332).
#include <cstdio>
#include <deque>
#include <string>
#include <unistd.h>
std::string *last;
int main()
{
	std::deque<std::string *> all;
	for (int i = 0; i < 1200000; i++)
		all.push_back(new std::string(80, 'k'));
	last = all.back();
	all.pop_back();
	for (auto s : all) delete s;
	all.clear();
	all.shrink_to_fit();
	puts("READY");
	fflush(stdout);
	pause();
}
