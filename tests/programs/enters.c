/* Has a realloc of its own, in assembly, which only notes its registers. A hundred thousand times on a line of input calls
   it with registers by chance, every thousandth time for the size of the first argument. Says how often, and of how many
   calls the registers were others than those at the call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 100000
#define EVERY 1000
#define REGISTERS 16
#define RSI 4

unsigned long given[REGISTERS], seen[REGISTERS];
void enter(void);

#define EACH(to, array)                                                                                           \
    to(rax, 0, array) to(rbx, 1, array) to(rcx, 2, array) to(rdx, 3, array) to(rsi, 4, array) to(rdi, 5, array)           \
    to(rbp, 6, array) to(r8, 7, array) to(r9, 8, array) to(r10, 9, array) to(r11, 10, array) to(r12, 11, array)           \
    to(r13, 12, array) to(r14, 13, array) to(r15, 14, array)
#define LOAD(name, place, array) "mov " #array "+8*" #place "(%rip), %" #name "\n"
#define STORE(name, place, array) "mov %" #name ", " #array "+8*" #place "(%rip)\n"

__asm__(".text\n"
        ".globl realloc\n.type realloc, @function\n"
        "realloc:\n" EACH(STORE, seen) STORE(rsp, 15, seen) "xor %eax, %eax\nret\n"
        ".size realloc, . - realloc\n"
        ".globl enter\n.type enter, @function\n"
        "enter:\n"
        "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "lea -8(%rsp), %rax\n" STORE(rax, 15, given) EACH(LOAD, given)
        "call realloc\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
        ".size enter, . - enter\n");

int main(int argc, char **argv) {
    char line[16];
    unsigned seed = 1;
    unsigned long calls = 0, wrong = 0;
    if (argc < 3) return 1;
    seed = strtoul(argv[2], 0, 10);
    while (read(0, line, sizeof line) > 0) {
        for (int i = 0; i < ROUNDS; i++) {
            for (int at = 0; at < REGISTERS; at++) given[at] = (unsigned long)rand_r(&seed) << 33 ^ rand_r(&seed);
            if (i % EVERY == 0) given[RSI] = strtoul(argv[1], 0, 10);
            enter();
            calls++;
            wrong += memcmp(given, seen, sizeof given) != 0;
        }
        fprintf(stderr, "{\"calls\": %lu, \"wrong\": %lu}\n", calls, wrong);
    }
    return 0;
}
