/* sparse_image FILE BITS: maps an image of 2^BITS bytes below all others, whose file has one page of data: an ELF header. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    unsigned long size = count < 3 ? 0 : 1ul << atoi(arguments[2]);
    static unsigned char page[4096];
    Elf64_Ehdr header = {.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = 1, .e_phoff = sizeof header,
                         .e_ehsize = sizeof header, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1};
    Elf64_Phdr load = {PT_LOAD, PF_R, 0, 0, 0, size, size, 4096};
    memcpy(header.e_ident, "\177ELF\2\1\1", 7);
    memcpy(page, &header, sizeof header);
    memcpy(page + sizeof header, &load, sizeof load);
    int file = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, page, sizeof page) != sizeof page || ftruncate(file, size) != 0)
        return 1;
    int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    if (mmap((void *)0x20000000, size, PROT_READ, flags, file, 0) == MAP_FAILED)
        return 1;
    for (int number = 0; number < 1000; number++)
        *(void *volatile *)malloc(100) = NULL;
    getchar();
    return 0;
}
