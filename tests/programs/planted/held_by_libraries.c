/* held_by_libraries SEED TABLE LIBRARY: blocks that only the static data of libraries hold, one of which is loaded at
 * run time and once unloaded: what the data held of a library that is gone is lost. */
#include "planted.h"
#include <dlfcn.h>
#include <stdlib.h>

void keeper_take(void *one, void *two, void *three);

static const char *library;

static void give(void (*take)(void *, void *, void *), void *three)
{
    take(planted_block(planted_between(8, 300)), planted_block(planted_between(8, 300)), three);
}

static void plant(void)
{
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == 0)
        abort();
    void (*take)(void *, void *, void *) = (void (*)(void *, void *, void *))dlsym(handle, "keeper_take");
    take(planted_lost(48, DIRECT, planted_group()), planted_lost(480, DIRECT, planted_group()), 0);
    dlclose(handle);
    for (size_t left = planted_between(1, 30); left > 0; left--)
        planted_lost(planted_between(8, 300), DIRECT, planted_group());
    give(keeper_take, 0);
}

static void plant_loaded(void)
{
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == 0)
        abort();
    give((void (*)(void *, void *, void *))dlsym(handle, "keeper_take"), 0);
}

int main(int argc, char **argv)
{
    planted_begin(argc, argv);
    library = argv[3];
    planted_apart(plant);
    planted_apart(plant_loaded);
    return planted_end();
}
