/* leaves PROGRAM: a target that means harm. It has what looks like a stub that gdbheap left in it, for an address where
   PROGRAM has the jump that such a stub would have; here the bytes cannot be written. When it is traced for the first time
   it runs PROGRAM. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096UL

/* The last page of a segment of its own, one before what the jump leads to. */
__asm__(".section .left,\"ax\"\nret\n.text\n");

static void await_tracer(int parent, int told)
{
    char path[64], text[4096];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof path, "/proc/%d/status", parent);
    for (;;) {
        int file = open(path, O_RDONLY);
        int size = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (size <= 0)
            _exit(0);
        text[size] = 0;
        close(file);
        char *line = strstr(text, "TracerPid:\t");
        if (line && line[11] != '0') {
            _exit(write(told, "x", 1) != 1);
        }
        usleep(100);
    }
}

int main(int count, char **argv)
{
    unsigned long place = CHOSEN_CODE, stub = place + 2 * PAGE - 48;
    unsigned char header[48] = "gdbheap\1", jump[] = {0xe9, 0, 0, 0, 0}, page[PAGE] = {0};
    int distance = 2 * PAGE - sizeof jump, ends[2];
    char name[] = "/tmp/leaves-XXXXXX", byte;
    memcpy(header + 8, &place, 8);
    header[16] = sizeof header, header[18] = sizeof jump;
    memcpy(header + 19, "HELLO", 5);
    memcpy(jump + 1, &distance, 4);
    memcpy(page, jump, sizeof jump);
    int file = mkstemp(name);
    if (count < 2 || file < 0 || unlink(name) || write(file, page, PAGE) != (long)PAGE || pipe(ends))
        return 4;
    /* Of a shared mapping that only reads, not even a tracer makes a copy. */
    if (mprotect((void *)(stub & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
        return 4;
    memcpy((void *)stub, header, sizeof header);
    if (mmap((void *)place, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        return 4;
    int self = getpid();
    if (fork() == 0)
        await_tracer(self, ends[1]);
    if (read(ends[0], &byte, 1) == 1)
        execl(argv[1], argv[1], (char *)NULL);
    return 3;
}
