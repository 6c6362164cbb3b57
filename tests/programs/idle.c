/* A program that never calls malloc: glibc's arena is as the linker left it. */
#include <unistd.h>

int main(void)
{
    for (;;)
        pause();
}
