/* opens_files COUNT. Opens so many files, and rests. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *files[1 << 10];

int main(int count, char **words) {
    int wanted = count > 1 ? atoi(words[1]) : 0;
    for (int place = 0; place < wanted && place < 1 << 10; place++)
        files[place] = fopen("/dev/null", "r");
    char byte;
    return read(0, &byte, 1) < 0;
}
