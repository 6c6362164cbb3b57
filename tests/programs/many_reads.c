/* A function whose unwind entry has one expression with READS reads of memory: many_reads. */
#include <unistd.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

void *self = &self;
void deep(void);
void rest(void) { char line; if (read(0, &line, 1) < 0) _exit(1); }

/* The frame's end is rsp + 16, after a word that points to itself was read again and again and then dropped. */
__asm__(".globl deep\n.type deep, @function\n"
        "deep:\n"
        ".cfi_startproc\n"
        "    pushq self(%rip)\n"
        ".cfi_escape 0x0f, " TEXT(READS) " + 5, 0x77, 0x00\n"
        ".rept " TEXT(READS) "\n"
        ".cfi_escape 0x06\n"
        ".endr\n"
        ".cfi_escape 0x13, 0x77, 0x10\n"
        "    call rest\n"
        "    addq $8, %rsp\n"
        "    ret\n"
        ".cfi_endproc\n");

int main(void) { deep(); return 0; }
