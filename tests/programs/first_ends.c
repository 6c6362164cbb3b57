/* first_ends BYTES: the first thread ends at once, and another one goes on; after each line of standard input it writes to
   BYTES more. Each number of a thread is said on standard output once it has done so. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t size;

static void *work(void *first)
{
    char line[16];
    pthread_join(*(pthread_t *)first, NULL);
    do {
        printf("%ld\n", syscall(SYS_gettid));
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            exit(0);
        char *volatile more = malloc(size);
        memset(more, 1, size);
    } while (1);
}

int main(int count, char **words)
{
    static pthread_t first, other;
    size = count > 1 ? strtoul(words[1], NULL, 10) : 0;
    first = pthread_self();
    if (pthread_create(&other, NULL, work, &first))
        return 1;
    pthread_exit(NULL);
}
