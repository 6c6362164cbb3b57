/* many_rules DEPTH
 *
 * So many calls of one function, whose entry in the table for unwinding has 2.5 MB of instructions that say nothing.
 */
#include "target.h"

#define FOUR(x) x "," x "," x "," x
#define SIZE_OF_ARGUMENTS "0x2e,0x00"

__asm__(".text\n"
        ".type deep,@function\n"
        "deep:\n"
        ".cfi_startproc\n"
        "subq $8,%rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".rept 20000\n"
        ".cfi_escape " FOUR(FOUR(FOUR(SIZE_OF_ARGUMENTS))) "\n"
        ".endr\n"
        "decl %edi\n"
        "js 1f\n"
        "call deep\n"
        "1: call rest\n"
        "addq $8,%rsp\n"
        "ret\n"
        ".cfi_endproc\n");

void deep(int depth);

__attribute__((used)) void rest(void)
{
    park();
}

int main(int argc, char **argv)
{
    deep(argc > 1 ? atoi(argv[1]) : 1);
}
