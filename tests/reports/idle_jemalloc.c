// Threads free a burst under jemalloc and rest: nothing advances the decay (pgdogdev/pgdog#1230).
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *worker(void *arg)
{
	static __thread void *m[400];
	for (int i = 0; i < 400; i++) { m[i] = malloc(100000); memset(m[i], 1, 100000); }
	for (int i = 0; i < 400; i++) free(m[i]);
	pthread_barrier_wait(arg);
	pause();
	return 0;
}
int main(void)
{
	pthread_barrier_t b;
	pthread_t t;
	pthread_barrier_init(&b, 0, 5);
	for (int i = 0; i < 4; i++) pthread_create(&t, 0, worker, &b);
	pthread_barrier_wait(&b);
	puts("READY");
	fflush(stdout);
	pause();
}
