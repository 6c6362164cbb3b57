/* A library with static data that holds a block, hidden, exported, and thread-local; once linked, once loaded at run
 * time. */
static void *volatile hidden;
void *keeper_exported;
static __thread void *volatile local;

void keeper_take(void *one, void *two, void *three)
{
    hidden = one;
    keeper_exported = two;
    local = three;
}
