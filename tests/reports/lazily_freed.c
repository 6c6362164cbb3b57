// 150 MiB that the program gave up with MADV_FREE stay resident (microsoft/mimalloc#776, JuliaLang/julia#51086).
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	size_t size = 160UL << 20;
	char *arena = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(arena, 7, size);
	madvise(arena + (10UL << 20), 150UL << 20, MADV_FREE);
	puts("READY");
	fflush(stdout);
	pause();
}
