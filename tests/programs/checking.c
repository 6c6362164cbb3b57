/* checking TABLE
 *
 * Checks itself: threads sleep in every kind of system call that ends by a time limit or by somebody's doing, count and
 * compute, and each of them knows what it must see. Signals are sent with numbers that must come without a gap. Threads,
 * forked and vforked children start and end all the time. TABLE is mapped shared: a line for each of the kinds.
 */
#include "target.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define LINES 64
#define MILLISECOND 1000000ULL
#define NAP (10 * MILLISECOND)
/* A signal that has not come within this time is lost. */
#define PATIENCE (20000 * MILLISECOND)
#define BLOCKS 200

/* interrupted: calls that ended with EINTR; wrong: other results than the one expected; longest: nanoseconds;
 * error and lasted: the errno and the nanoseconds of the last one with a time limit that was wrong. */
struct line {
    char name[32];
    uint64_t rounds, interrupted, wrong, longest, error, lasted;
};

static struct line *table;
static int lines;
static int epoll, semaphores, sockets[2], pipes[2], listener;
static struct sockaddr_un address;
static socklen_t address_size;
static uint32_t word;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static struct line *of_queue;
static pthread_t catcher;
static volatile uint64_t caught, queued, killed;

static uint64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* Time in ticks, as the kernel counts the time limits of sockets. Ticks stand still while a virtual machine's processor
 * is taken away, and catch up at once: by any other clock such a limit may be over early. */
static uint64_t ticks(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

static struct timespec span(uint64_t nanoseconds)
{
    struct timespec time = {(time_t)(nanoseconds / 1000000000ULL), (long)(nanoseconds % 1000000000ULL)};
    return time;
}

static void rest(uint64_t nanoseconds)
{
    struct timespec time = span(nanoseconds);
    while (nanosleep(&time, &time) != 0)
        ;
}

static struct line *new_line(const char *name)
{
    struct line *line = &table[lines++];
    strncpy(line->name, name, sizeof line->name - 1);
    return line;
}

static void judge_lasted(struct line *line, int error, int expected, uint64_t lasted, uint64_t least)
{
    if (error == EINTR) {
        line->interrupted++;
    } else if (error != expected || lasted < least) {
        line->error = (uint64_t)error;
        line->lasted = lasted;
        line->wrong++;
    }
}

/* A call with a time limit: it must have ended with this errno, 0 for none, and not before its time. */
static void judge(struct line *line, int error, int expected, uint64_t started, uint64_t least)
{
    judge_lasted(line, error, expected, now() - started, least);
}

static void in_epoll(struct line *line)
{
    struct epoll_event event;
    uint64_t started = now();
    judge(line, epoll_wait(epoll, &event, 1, NAP / MILLISECOND) ? errno : 0, 0, started, NAP);
}

static void in_poll(struct line *line)
{
    struct pollfd file = {sockets[0], POLLPRI, 0};
    uint64_t started = now();
    judge(line, poll(&file, 1, NAP / MILLISECOND) ? errno : 0, 0, started, NAP);
}

static void in_ppoll(struct line *line)
{
    struct pollfd file = {sockets[0], POLLPRI, 0};
    struct timespec limit = span(NAP);
    uint64_t started = now();
    judge(line, ppoll(&file, 1, &limit, NULL) ? errno : 0, 0, started, NAP);
}

static void in_select(struct line *line)
{
    fd_set files;
    struct timeval limit = {0, NAP / 1000};
    uint64_t started = now();
    FD_ZERO(&files);
    FD_SET(sockets[0], &files);
    judge(line, select(sockets[0] + 1, NULL, NULL, &files, &limit) ? errno : 0, 0, started, NAP);
}

static void in_semaphore(struct line *line)
{
    struct sembuf take = {0, -1, 0};
    struct timespec limit = span(NAP);
    uint64_t started = now();
    judge(line, semtimedop(semaphores, &take, 1, &limit) ? errno : 0, EAGAIN, started, NAP / 2);
}

static void in_sigtimedwait(struct line *line)
{
    sigset_t set;
    struct timespec limit = span(NAP);
    uint64_t started = now();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    judge(line, sigtimedwait(&set, NULL, &limit) < 0 ? errno : 0, EAGAIN, started, NAP / 2);
}

static void in_receive(struct line *line)
{
    char byte;
    uint64_t started = ticks();
    int error = recv(sockets[0], &byte, 1, 0) < 0 ? errno : 0;
    judge_lasted(line, error, EAGAIN, ticks() - started, NAP / 2);
}

static void in_nanosleep(struct line *line)
{
    struct timespec time = span(NAP);
    uint64_t started = now();
    judge(line, nanosleep(&time, NULL) ? errno : 0, 0, started, NAP);
}

static void in_clock_nanosleep(struct line *line)
{
    struct timespec time = span(NAP);
    uint64_t started = now();
    judge(line, clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL), 0, started, NAP);
}

static void in_futex(struct line *line)
{
    struct timespec limit = span(NAP);
    uint64_t started = now();
    judge(line, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0) ? errno : 0, ETIMEDOUT, started, NAP);
}

static void in_condition(struct line *line)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += NAP;
    time.tv_sec += time.tv_nsec / 1000000000L;
    time.tv_nsec %= 1000000000L;
    uint64_t started = now();
    pthread_mutex_lock(&mutex);
    judge(line, pthread_cond_timedwait(&never, &mutex, &time), ETIMEDOUT, started, NAP / 2);
    pthread_mutex_unlock(&mutex);
}

static void in_read(struct line *line)
{
    static uint64_t expected;
    uint64_t number = 0;
    ssize_t size = read(pipes[0], &number, sizeof number);
    if (size < 0 && errno == EINTR)
        line->interrupted++;
    else if (size != sizeof number || number != expected++)
        line->wrong++;
}

static void feeding(struct line *line)
{
    static uint64_t number;
    rest(NAP / 2);
    if (write(pipes[1], &number, sizeof number) != sizeof number)
        line->wrong++;
    number++;
}

static void in_accept(struct line *line)
{
    static uint64_t expected;
    uint64_t number = 0;
    int file = accept(listener, NULL, NULL);
    if (file < 0) {
        *(errno == EINTR ? &line->interrupted : &line->wrong) += 1;
        return;
    }
    if (read(file, &number, sizeof number) != sizeof number || number != expected++)
        line->wrong++;
    close(file);
}

static void connecting(struct line *line)
{
    static uint64_t number;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rest(NAP);
    if (connect(file, (struct sockaddr *)&address, address_size) || write(file, &number, sizeof number) != sizeof number)
        line->wrong++;
    close(file);
    number++;
}

static void wait_for(struct line *line, pid_t child, int expected)
{
    int status = 0;
    pid_t answer;
    while ((answer = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        line->interrupted++;
    if (child < 0 || answer != child || !WIFEXITED(status) || WEXITSTATUS(status) != expected)
        line->wrong++;
}

static void in_waitpid(struct line *line)
{
    int expected = (int)(line->rounds % 128);
    pid_t child = fork();
    if (child == 0) {
        rest(2 * MILLISECOND);
        _exit(expected);
    }
    wait_for(line, child, expected);
    rest(5 * NAP);
}

/* The child does nothing but system calls on the parent's stack; the parent sleeps uninterruptibly meanwhile. */
static void in_vfork(struct line *line)
{
    struct timespec time = span(2 * MILLISECOND);
    int expected = (int)(line->rounds % 128);
    pid_t child = vfork();
    if (child == 0) {
        syscall(SYS_nanosleep, &time, NULL);
        _exit(expected);
    }
    wait_for(line, child, expected);
    rest(5 * NAP);
}

static void *doubled(void *argument)
{
    rest(MILLISECOND / 10);
    return (void *)((uintptr_t)argument * 2);
}

static void starting_threads(struct line *line)
{
    pthread_t threads[4];
    void *answer;
    for (uintptr_t i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, doubled, (void *)i))
            abort();
    for (uintptr_t i = 0; i < 4; i++)
        if (pthread_join(threads[i], &answer) || answer != (void *)(i * 2))
            line->wrong++;
    rest(NAP);
}

static void allocating(struct line *line)
{
    static unsigned char *blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    static uint64_t random = 88172645463325252ULL;
    for (int n = 0; n < 50; n++) {
        size_t i = draw(&random) % BLOCKS;
        for (size_t at = 0; at < sizes[i]; at++)
            line->wrong += blocks[i][at] != (unsigned char)(sizes[i] + i + at);
        free(blocks[i]);
        sizes[i] = between(&random, 1, 3000);
        blocks[i] = malloc(sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++)
            blocks[i][at] = (unsigned char)(sizes[i] + i + at);
    }
    rest(NAP / 2);
}

#ifdef __x86_64__
/* Sixteen vector registers hold numbers for a while; nobody else may change one. */
static void computing(struct line *line)
{
    uint64_t in[2] = {line->rounds | 1, 42}, out[4][2];
    for (int n = 0; n < 20; n++) {
        __asm__ volatile(
            "movdqu (%0), %%xmm0\n\t movdqa %%xmm0, %%xmm1\n\t movdqa %%xmm0, %%xmm7\n\t movdqa %%xmm0, %%xmm15\n\t"
            "mov $2000, %%ecx\n\t 1: pause\n\t dec %%ecx\n\t jnz 1b\n\t"
            "movdqu %%xmm0, (%1)\n\t movdqu %%xmm1, 16(%1)\n\t movdqu %%xmm7, 32(%1)\n\t movdqu %%xmm15, 48(%1)"
            : : "r"(in), "r"(out) : "ecx", "memory", "xmm0", "xmm1", "xmm7", "xmm15");
        for (int i = 0; i < 4; i++)
            line->wrong += out[i][0] != in[0] || out[i][1] != in[1];
    }
    rest(2 * NAP);
}
#endif

static void watching_the_clock(struct line *line)
{
    uint64_t before = now();
    rest(MILLISECOND);
    uint64_t gap = now() - before - MILLISECOND;
    if (gap > line->longest)
        line->longest = gap;
}

/* Numbers that were queued come in order, each of them. */
static void on_queue(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
    if (value != caught)
        of_queue->wrong++;
    caught = value + 1;
}

static void on_kill(int number)
{
    (void)number;
    killed++;
}

static void await(struct line *line, volatile uint64_t *counter, uint64_t wanted)
{
    uint64_t started = now();
    while (*counter < wanted && now() - started < PATIENCE)
        rest(MILLISECOND / 10);
    if (*counter < wanted)
        line->wrong++;
}

static void queueing(struct line *line)
{
    union sigval value = {.sival_ptr = (void *)(uintptr_t)queued};
    if (pthread_sigqueue(catcher, SIGRTMIN, value) == 0)
        queued++;
    rest(2 * MILLISECOND);
    if (queued - caught > 50)
        await(line, &caught, queued);
}

static void killing(struct line *line)
{
    uint64_t before = killed;
    kill(getpid(), SIGUSR1);
    await(line, &killed, before + 1);
    rest(2 * MILLISECOND);
}

static void *catching(void *unused)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;)
        pause();
    return unused;
}

static const struct kind {
    const char *name;
    void (*once)(struct line *);
} kinds[] = {
    {"epoll_wait", in_epoll}, {"poll", in_poll}, {"ppoll", in_ppoll}, {"select", in_select},
    {"semtimedop", in_semaphore}, {"sigtimedwait", in_sigtimedwait}, {"recv", in_receive},
    {"nanosleep", in_nanosleep}, {"clock_nanosleep", in_clock_nanosleep}, {"futex", in_futex},
    {"pthread_cond_timedwait", in_condition}, {"read", in_read}, {"write", feeding}, {"accept", in_accept},
    {"connect", connecting}, {"waitpid", in_waitpid}, {"vfork", in_vfork}, {"threads", starting_threads},
    {"malloc", allocating}, {"clock", watching_the_clock}, {"sigqueue", queueing}, {"kill", killing},
#ifdef __x86_64__
    {"vector registers", computing},
#endif
};

static struct line *line_of[sizeof kinds / sizeof *kinds];

static void *run(void *argument)
{
    size_t index = (size_t)(uintptr_t)argument;
    for (;;) {
        kinds[index].once(line_of[index]);
        line_of[index]->rounds++;
    }
    return NULL;
}

static void open_all(void)
{
    struct timeval limit = {0, NAP / 1000};
    epoll = epoll_create1(EPOLL_CLOEXEC);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sun_family = AF_UNIX;
    address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1);
    address_size += (socklen_t)snprintf(address.sun_path + 1, 60, "gdbheap-checking-%d", getpid());
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) || pipe(pipes) || epoll < 0 || semaphores < 0)
        abort();
    if (bind(listener, (struct sockaddr *)&address, address_size) || listen(listener, 50))
        abort();
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static void handle(void)
{
    struct sigaction queue = {.sa_sigaction = on_queue, .sa_flags = SA_SIGINFO}, other = {.sa_handler = on_kill};
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    sigaction(SIGRTMIN, &queue, NULL);
    sigaction(SIGUSR1, &other, NULL);
}

/* The semaphore outlives the process that made it: whoever ends this one writes a byte first, or closes its input. */
static void await_end(void)
{
    char byte;
    while (read(0, &byte, 1) < 0 && errno == EINTR)
        ;
    semctl(semaphores, 0, IPC_RMID);
    _exit(0);
}

int main(int count, char **arguments)
{
    pthread_t thread;
    int file = count == 2 ? open(arguments[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, LINES * (off_t)sizeof *table))
        return 2;
    table = mmap(NULL, LINES * sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (table == MAP_FAILED)
        return 2;
    close(file);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_all();
    handle();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        line_of[i] = new_line(kinds[i].name);
        if (strcmp(kinds[i].name, "sigqueue") == 0)
            of_queue = line_of[i];
    }
    if (pthread_create(&catcher, NULL, catching, NULL))
        return 2;
    for (uintptr_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (pthread_create(&thread, NULL, run, (void *)i))
            return 2;
    await_end();
}
