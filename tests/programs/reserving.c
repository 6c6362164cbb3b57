/* Maps memory of which it has few pages: "reserving MIB [MIB of private memory with one page]". Prints "ready", then the addresses of shared memory of which it
   has one page, of shared memory of which it has all, of private memory and of address space that it has not touched. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *mapped(size_t size, int protection, int flags) {
    return mmap(NULL, size, protection, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int main(int count, char **words) {
    size_t size = strtoul(count > 1 ? words[1] : "64", NULL, 10) << 20, small = 64 << 10;
    char *sparse = mapped(size, PROT_READ | PROT_WRITE, MAP_SHARED);
    char *whole = mapped(small, PROT_READ | PROT_WRITE, MAP_SHARED);
    char *untouched = mapped(size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    char *space = mapped(size, PROT_NONE, MAP_PRIVATE);
    char *own = mapped(small, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    if (count > 2)
        mapped(strtoul(words[2], NULL, 10) << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE)[0] = 1;
    sparse[0] = 1;
    memset(whole, 'w', small);
    memset(own, 'o', small);
    printf("ready\n%p %p %p %p %p\n", (void *)sparse, (void *)whole, (void *)untouched, (void *)space, (void *)own);
    fflush(stdout);
    pause();
    return 0;
}
