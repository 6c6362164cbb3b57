/* turns PROGRAM FUNCTION HOW: a target that means harm. Its own FUNCTION of libc runs PROGRAM: in the thread that called it
   ("self"), or in a new one ("thread"). What a call from outside puts back, errno and the stream stderr, lies where
   PROGRAM has its data, and has other bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define FLAGS 0xfbad2086u

static char *words[2], *none[1], *how;

static void run(void)
{
    long found;
    __asm__ volatile("syscall" : "=a"(found) : "a"(SYS_execve), "D"(words[0]), "S"(words), "d"(none) : "rcx", "r11", "memory");
    _exit(3);
}

static void *run_in_thread(void *unused)
{
    (void)unused;
    run();
    return NULL;
}

static void turn(void)
{
    pthread_t thread;
    if (strcmp(how, "thread") != 0)
        run();
    pthread_create(&thread, NULL, run_in_thread, NULL);
    for (;;)
        pause();
}

static void replace(const char *name, const unsigned char *code, size_t size)
{
    char *function = dlsym(RTLD_DEFAULT, name);
    char *page = (char *)((unsigned long)function & ~(PAGE - 1));
    if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
        exit(4);
    memcpy(function, code, size);
    mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
}

int main(int count, char **argv)
{
    /* mov $ERRNO, %rax; ret, and mov $turn, %rax; jmp *%rax. */
    unsigned char place[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xc3};
    unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    char *data = mmap((void *)CHOSEN_DATA, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    void (*to)(void) = turn;
    if (count < 4 || data == MAP_FAILED)
        return 4;
    words[0] = argv[1], how = argv[3];
    memset(data, 0x11, PAGE);
    memset(data + 0x300, 0, 16);
    char *stream = data + 0x400, *errors = data + 0x100, *buffer = data + 0x800, *end = data + PAGE, *lock = data + 0x300;
    memset(stream, 0, 216);
    *(unsigned *)stream = FLAGS;
    memcpy(stream + 56, &buffer, 8), memcpy(stream + 64, &end, 8), memcpy(stream + 136, &lock, 8);
    *(int *)(stream + 112) = 2;
    memcpy(place + 2, &errors, 8), memcpy(jump + 2, &to, 8);
    stderr = (FILE *)stream;
    replace("__errno_location", place, sizeof place);
    replace(argv[2], jump, sizeof jump);
    for (;;)
        pause();
}
