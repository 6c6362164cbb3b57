// 80 regions of 2 MiB with huge pages, one small page used in each (gperftools/gperftools#1073, jemalloc/jemalloc#1674).
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *regions[80];

int main(void)
{
	char *all = mmap(0, 82UL << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	all = (char *)(((unsigned long)all + (2UL << 20) - 1) & ~((2UL << 20) - 1));
	madvise(all, 80UL << 21, MADV_HUGEPAGE);
	for (int i = 0; i < 80; i++) {
		regions[i] = all + ((unsigned long)i << 21);
		memset(regions[i], 'a' + i % 26, 4096);  // one page of 512
	}
	puts("READY");
	fflush(stdout);
	pause();
}
