/* Threads that come and go all the time; argv[1]: how many at once. Ends with standard input. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *pass(void *argument) { return argument; }

static void *start(void *argument) {
    pthread_t thread;
    for (;;)
        if (pthread_create(&thread, NULL, pass, argument) == 0)
            pthread_join(thread, NULL);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    for (int number = argc > 1 ? atoi(argv[1]) : 4; number > 0; number--)
        if (pthread_create(&thread, NULL, start, NULL))
            abort();
    struct pollfd told = {0, POLLIN | POLLHUP, 0};
    return poll(&told, 1, -1) < 0;
}
