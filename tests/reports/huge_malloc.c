// Blocks of 3 MiB of which 4 KiB are used, with GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (gperftools/gperftools#1073).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char *blocks[60];
int main(void)
{
	for (int i = 0; i < 60; i++) {
		blocks[i] = malloc(3 << 20);
		memset(blocks[i], 'b', 4096);
	}
	puts("READY");
	fflush(stdout);
	pause();
}
