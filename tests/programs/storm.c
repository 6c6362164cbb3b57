/* Threads that notice whatever a call into them leaves behind: each does one thing over and over, checks what came of
   it, and counts its rounds and its faults in the file that argument 1 names.

   storm FILE: FILE is made of 32 slots of 64 bytes: rounds, faults, thread id, name. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct slot {
    volatile uint64_t rounds, faults, tid;
    char name[40];
};
static struct slot *slots;
static int pipe_ends[2];
static sem_t never;
static volatile uint64_t handled;
static volatile int receiver;
static _Thread_local struct slot *mine;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void check(int right)
{
    if (!right)
        mine->faults++;
}

/* Between 1 and 20 ms. */
static long some(unsigned *seed)
{
    return 1000 * (1000 + rand_r(seed) % 19000);
}

static void sleeps(unsigned *seed)
{
    struct timespec asked = {0, some(seed)};
    double before = now();
    check(clock_nanosleep(CLOCK_MONOTONIC, 0, &asked, NULL) == 0);
    check(now() - before >= asked.tv_nsec / 1e9);
}

static void polls(unsigned *seed)
{
    int milliseconds = some(seed) / 1000000 + 1;
    double before = now();
    check(poll(NULL, 0, milliseconds) == 0);
    check(now() - before >= milliseconds / 1e3);
}

static void selects(unsigned *seed)
{
    struct timeval asked = {0, some(seed) / 1000};
    double wanted = asked.tv_usec / 1e6, before = now();
    check(select(0, NULL, NULL, NULL, &asked) == 0);
    check(now() - before >= wanted);
}

static void waits(unsigned *seed)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += some(seed);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    errno = 0;
    check(sem_timedwait(&never, &until) == -1 && errno == ETIMEDOUT);
}

static void reads(unsigned *seed)
{
    static uint64_t expected;
    uint64_t number = 0;
    (void)seed;
    check(read(pipe_ends[0], &number, sizeof number) == sizeof number && number == expected);
    expected++;
}

static void writes(unsigned *seed)
{
    static uint64_t number;
    struct timespec pause = {0, some(seed) / 4};
    check(write(pipe_ends[1], &number, sizeof number) == sizeof number);
    number++;
    check(nanosleep(&pause, NULL) == 0);
}

/* The general registers and the red zone. Not inlined: a leaf without a frame of its own. */
__attribute__((noinline, naked)) static uint64_t registers(void)
{
    __asm__("push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
            "mov $0x1111111111111111, %rbx; mov $0x2222222222222222, %rbp; mov $0x3333333333333333, %r12\n"
            "mov $0x4444444444444444, %r13; mov $0x5555555555555555, %r14; mov $0x6666666666666666, %r15\n"
            "mov %rbx, %r8; mov %rbp, %r9; mov %r12, %r10; mov %r13, %r11; mov %r14, %rsi; mov %r15, %rdi\n"
            "mov %rbx, -8(%rsp); mov %rbp, -64(%rsp); mov %r12, -128(%rsp)\n"
            "mov $2000000, %ecx\n"
            "std\n"
            "1: dec %ecx; jnz 1b\n"
            "pushfq; pop %rdx; cld; bt $10, %rdx; sbb %rax, %rax; not %rax\n"
            "mov %rbx, -8(%rsp)\n" /* pushfq has used it */
            "xor %r8, %rbx; or %rbx, %rax; xor %r9, %rbp; or %rbp, %rax; xor %r10, %r12; or %r12, %rax\n"
            "xor %r11, %r13; or %r13, %rax; xor %rsi, %r14; or %r14, %rax; xor %rdi, %r15; or %r15, %rax\n"
            "xor -64(%rsp), %r9; or %r9, %rax; xor -128(%rsp), %r10; or %r10, %rax\n"
            "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret");
}

static void counts(unsigned *seed)
{
    (void)seed;
    check(registers() == 0);
}

#define EACH(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)
#define LOAD256(n) "vmovdqu " #n "*32(%0), %%ymm" #n "\n"
#define STORE256(n) "vmovdqu %%ymm" #n ", " #n "*32(%1)\n"
#define LOAD512(n) "vmovdqu64 " #n "*64(%0), %%zmm" #n "\n"
#define STORE512(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%1)\n"
#define HIGH(do) do(16) do(17) do(18) do(19) do(20) do(21) do(22) do(23) do(24) do(25) do(26) do(27) do(28) do(29) do(30) do(31)
#define SPIN "mov $1000000, %%ecx\n1: dec %%ecx\njnz 1b\n"

static void compare(void (*turn)(const char *, char *), size_t size, unsigned *seed)
{
    char in[32 * 64], out[32 * 64] = {0};
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = rand_r(seed);
    turn(in, out);
    check(memcmp(in, out, size) == 0);
}

static void turn256(const char *in, char *out)
{
    __asm__ volatile(EACH(LOAD256) SPIN EACH(STORE256) "vzeroupper" ::"r"(in), "r"(out) : "ecx", "memory");
}

static void turn512(const char *in, char *out)
{
    __asm__ volatile(EACH(LOAD512) HIGH(LOAD512) SPIN EACH(STORE512) HIGH(STORE512) "vzeroupper" ::"r"(in), "r"(out)
                     : "ecx", "memory");
}

/* One tile of 16 rows of 64 bytes. */
static void turn_tile(const char *in, char *out)
{
    static const unsigned char config[64] = {[0] = 1, [16] = 64, [48] = 16};
    __asm__ volatile("ldtilecfg (%2)\n"
                     "tileloadd (%0,%3,1), %%tmm0\n" SPIN "tilestored %%tmm0, (%1,%3,1)\n"
                     "tilerelease" ::"r"(in),
                     "r"(out), "r"(config), "r"(64L)
                     : "ecx", "memory");
}

static void avx2(unsigned *seed)
{
    compare(turn256, 16 * 32, seed);
}

static void avx512(unsigned *seed)
{
    compare(turn512, 32 * 64, seed);
}

static void amx(unsigned *seed)
{
    compare(turn_tile, 16 * 64, seed);
}

static void handler(int number)
{
    sigset_t mask;
    (void)number;
    int kept = errno;
    check(registers() == 0);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    check(sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGUSR2));
    handled++;
    errno = kept;
}

static void receives(unsigned *seed)
{
    static char stack[1 << 18];
    static int ready;
    if (!ready) {
        stack_t other = {stack, 0, sizeof stack};
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
        check(sigaltstack(&other, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
        receiver = gettid();
        ready = 1;
    }
    counts(seed);
}

static void sends(unsigned *seed)
{
    uint64_t before = handled;
    struct timespec pause = {0, some(seed) / 8};
    nanosleep(&pause, NULL);
    if (!receiver)
        return;
    check(syscall(SYS_tgkill, getpid(), receiver, SIGUSR1) == 0);
    for (double start = now(); handled == before && now() - start < 60;)
        sched_yield();
    check(handled == before + 1);
}

struct work {
    const char *name;
    void (*round)(unsigned *);
    struct slot *slot;
};

static void *go(void *argument)
{
    struct work *work = argument;
    sigset_t first, mask;
    unsigned seed = (uintptr_t)argument ^ getpid();
    mine = work->slot;
    mine->tid = gettid();
    pthread_sigmask(SIG_BLOCK, NULL, &first);
    for (;;) {
        work->round(&seed);
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        check(memcmp(&mask, &first, 8) == 0);
        mine->rounds++;
    }
    return NULL;
}

static int has_amx(void)
{
    unsigned a, b, c, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1 << 24))
        return 0;
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

int main(int argc, char **argv)
{
    static struct work all[] = {
        {"sleeps", sleeps, 0}, {"polls", polls, 0}, {"selects", selects, 0}, {"waits", waits, 0},
        {"reads", reads, 0}, {"writes", writes, 0}, {"registers", counts, 0}, {"receives", receives, 0},
        {"sends", sends, 0}, {"avx2", avx2, 0}, {"avx512", avx512, 0}, {"amx", amx, 0},
    };
    int file = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, 32 * sizeof *slots) || pipe(pipe_ends) || sem_init(&never, 0, 0))
        return 1;
    slots = mmap(NULL, 32 * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (int i = 0; i < 2000; i++) { /* holes */
        void *volatile kept = malloc(5000), *volatile given = malloc(9000);
        (void)kept;
        free(given);
    }
    mine = &slots[31];
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        pthread_t thread;
        if (all[i].round == avx2 && !__builtin_cpu_supports("avx2"))
            continue;
        if (all[i].round == avx512 && !__builtin_cpu_supports("avx512f"))
            continue;
        if (all[i].round == amx && !has_amx())
            continue;
        all[i].slot = &slots[i];
        strcpy(slots[i].name, all[i].name);
        pthread_create(&thread, NULL, go, &all[i]);
    }
    for (;;)
        pause();
}
