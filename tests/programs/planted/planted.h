/* What programs share that lose blocks on purpose and know which: their own table, which no tool can take for pointers,
 * and an end at which no stale pointer is left.
 *
 * The planting runs in a thread whose stack is unmapped afterwards; each planted block is filled. The table holds
 * addresses complemented, in memory that is written to a file and given back before the program rests. What holds a
 * block is no static variable of a file: the compiler leaves out those that nobody reads.
 */
#ifndef PLANTED_H
#define PLANTED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of a block. DIRECT: no block points to it; INDIRECT: another lost one does; CYCLE: the blocks of its group
 * point to each other and no other block does; INTERIOR: something that is held points into its middle and nothing to
 * its start; ON_STACK: only the stack of a thread that lives leads to it; IN_REGISTER: only one of its registers does. BY_LAYOUT: as INTERIOR, where compilers put such words (the second base of an
 * object, an array after its count, what an Rc counts), so that a tool may know it for a reference. */
enum planted_kind { DIRECT, INDIRECT, CYCLE, INTERIOR, ON_STACK, IN_REGISTER, BY_LAYOUT };

/* A number in [low, high]. */
size_t planted_between(size_t low, size_t high);
/* A filled block; the program aborts where there is none. */
void *planted_block(size_t size);
/* Notes what becomes of a block; the blocks of a structure have one group. */
void planted_note(const void *block, size_t size, enum planted_kind kind, uint64_t group);
/* A block that is noted. */
void *planted_lost(size_t size, enum planted_kind kind, uint64_t group);
/* A number for a new group. */
uint64_t planted_group(void);
/* Runs it in a thread whose stack goes with it. */
void planted_apart(void (*plant)(void));
/* Starts a thread that stays; a pointer is given complemented. Returns when it has called planted_settled(). */
void planted_thread(void (*run)(uint64_t), uint64_t hidden);
void planted_settled(void);
/* Seeds the numbers: the first argument. The second one is the file for the table. */
void planted_begin(int argc, char **argv);
/* Writes the table: u64 ~address, requested size, bytes of the chunk, kind, group. Under a leak checker that checks and
 * ends, else the program rests. */
int planted_end(void);

#ifdef __cplusplus
}
#endif
#endif
