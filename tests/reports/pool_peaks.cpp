// 12 pool threads handle requests one after another; each leaves its peak in its own arena (amule-org/amule#1095).
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

struct Session { std::string name; char state[600]; };
static std::vector<Session *> sessions;
static std::mutex m;

static void handle(int request)
{
	std::vector<std::string> rows;
	for (int i = 0; i < 60000; i++)
		rows.emplace_back(120 + i % 40, 'x');
	auto session = new Session{"user-" + std::to_string(request), {}};
	std::lock_guard<std::mutex> l(m);
	sessions.push_back(session);
}

int main()
{
	std::vector<std::thread> pool;
	std::mutex turn;
	std::condition_variable cv;
	int next = 0, done = 0;
	for (int t = 0; t < 12; t++)
		pool.emplace_back([&, t] {
			for (;;) {
				std::unique_lock<std::mutex> l(turn);
				cv.wait(l, [&] { return next < 36 && next % 12 == t; });
				handle(next);
				next++;
				done++;
				cv.notify_all();
			}
		});
	{
		std::unique_lock<std::mutex> l(turn);
		cv.wait(l, [&] { return done == 36; });
	}
	puts("READY");
	fflush(stdout);
	pause();
}
