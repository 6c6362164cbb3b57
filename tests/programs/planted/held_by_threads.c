/* held_by_threads SEED TABLE: blocks that only a living thread has: in its thread-local data, on its stack, in one of
 * its registers; each with a list behind it. And blocks of threads that have ended: those are lost. */
#include "planted.h"
#include <unistd.h>

struct node { struct node *next; char data[24]; };

__thread struct node *local;

/* A list that is not lost: what is behind a block that a thread has. */
static struct node *list(enum planted_kind kind)
{
    struct node *head = 0;
    uint64_t group = planted_group();
    for (size_t left = planted_between(1, 20); left > 0; left--) {
        struct node *node = kind != DIRECT ? planted_lost(sizeof *node, kind, group) : planted_block(sizeof *node);
        node->next = head;
        head = node;
    }
    return head;
}

static void in_thread_local_data(uint64_t hidden)
{
    (void)hidden;
    local = list(DIRECT);
    planted_settled();
}

static void on_its_stack(uint64_t hidden)
{
    struct node *volatile kept = (struct node *)~hidden;
    planted_settled();
    for (;;) {
        /* pause(2); the compiler must keep the frame. */
        long number = 34;
        __asm__ volatile("syscall" : "+a"(number) : "r"(&kept) : "rcx", "r11", "memory");
    }
}

static volatile int registered;

static void in_a_register(uint64_t hidden)
{
    planted_settled();
    /* The address is in r12 alone from here on. */
    __asm__ volatile(
        "mov %0, %%r12\n\t"
        "not %%r12\n\t"
        "movl $1, %1\n\t"
        "1: mov $34, %%eax\n\t"
        "syscall\n\t"
        "jmp 1b"
        :
        : "r"(hidden), "m"(registered)
        : "r12", "rax", "rcx", "r11", "memory");
}

static uint64_t hidden_lists[2];

static void plant(void)
{
    hidden_lists[0] = ~(uint64_t)list(ON_STACK);
    hidden_lists[1] = ~(uint64_t)list(IN_REGISTER);
}

__thread void *own;

static void ends(void)
{
    for (size_t left = planted_between(1, 40); left > 0; left--)
        own = planted_lost(planted_between(8, 400), DIRECT, planted_group());
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    planted_apart(plant);
    for (size_t left = planted_between(1, 5); left > 0; left--)
        planted_apart(ends);
    for (size_t left = planted_between(1, 3); left > 0; left--)
        planted_thread(in_thread_local_data, 0);
    planted_thread(on_its_stack, hidden_lists[0]);
    planted_thread(in_a_register, hidden_lists[1]);
    while (!registered)
        usleep(1000);
    return planted_end();
}
