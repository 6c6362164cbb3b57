/* freed_twice SEED HOW FILE
 *
 * A few blocks of some sizes, of which some are freed; then, by HOW: "twice" frees a block again that waits in a list of
 * free ones, "written" writes into its first bytes, "sound" does neither. FILE gets the address of that block, 8 bytes; then it waits,
 * or with SPINS, an argument more, counts for ever, with nothing of what it called
 * left in its registers.
 */
#include "target.h"

#define BLOCKS 60

#if defined(__has_attribute)
#if __has_attribute(zero_call_used_regs)
__attribute__((zero_call_used_regs("all")))
#endif
#endif
__attribute__((noinline)) static void leave_no_register(void)
{
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        abort();
    uint64_t random = seeded(strtoull(argv[1], NULL, 10));
    size_t sizes[BLOCKS];
    void *blocks[BLOCKS];
    size_t size = 16 * between(&random, 2, 12);
    for (size_t i = 0; i < BLOCKS; i++) {
        sizes[i] = i % 3 == 0 ? 16 * between(&random, 2, 12) : size;
        blocks[i] = malloc(sizes[i]);
        memset(blocks[i], 0xA5, sizes[i]);
    }
    for (size_t i = 0; i < 12; i++)
        free(blocks[i]);
    void *volatile block = blocks[between(&random, 0, 3) * 3 + 1];
    if (strcmp(argv[2], "twice") == 0)
        free(block);
    else if (strcmp(argv[2], "written") == 0)
        *(uint64_t *)block = 0x6161616161616161;
    uint64_t address = (uint64_t)block;
    write_file(argv[3], &address, sizeof address);
    leave_no_register();
    for (volatile uint64_t count = 0; argc == 5;)
        count++;
    park();
}
