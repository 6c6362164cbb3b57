/* overlapping FILE COUNT: writes a sparse ELF file whose program headers say COUNT times "64 MiB of writable data from
   the beginning", and maps its beginning, where the headers in memory say it once. */
#include "target.h"
#include <elf.h>

enum { MAPPED = 1 << 16, DATA = 64 << 20, NOTE_BYTES = 36 };

static unsigned char start[MAPPED];

static void describe(Elf64_Ehdr *header, uint64_t base, uint16_t count)
{
    Elf64_Phdr *parts = (Elf64_Phdr *)(header + 1);
    uint64_t note = sizeof *header + (count + 1u) * sizeof *parts;
    uint32_t words[] = {4, 20, NT_GNU_BUILD_ID};
    memcpy(header->e_ident, "\177ELF\2\1\1", 7);
    header->e_type = ET_DYN;
    header->e_machine = EM_X86_64;
    header->e_version = 1;
    header->e_phoff = header->e_ehsize = sizeof *header;
    header->e_phentsize = sizeof *parts;
    header->e_phnum = (uint16_t)(count + 1);
    parts[0] = (Elf64_Phdr){PT_NOTE, PF_R, note, base + note, base + note, NOTE_BYTES, NOTE_BYTES, 4};
    for (size_t number = 1; number <= count; number++)
        parts[number] = (Elf64_Phdr){PT_LOAD, PF_R | PF_W, 0, base, base, DATA, DATA, 4096};
    memcpy(start + note, words, sizeof words);
    memcpy(start + note + sizeof words, "GNU", 4);
    memset(start + note + sizeof words + 4, 0xab, 20);
}

int main(int argc, char **words)
{
    uint64_t base = 0x10000000;
    if (argc < 3)
        return 2;
    describe((Elf64_Ehdr *)start, base, (uint16_t)atoi(words[2]));
    int file = open(words[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || write(file, start, MAPPED) != MAPPED || ftruncate(file, DATA))
        return 3;
    Elf64_Ehdr *header = mmap((void *)base, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
    if (header == MAP_FAILED)
        return 4;
    Elf64_Phdr *parts = (Elf64_Phdr *)(header + 1);
    header->e_phnum = 2;
    parts[1].p_filesz = parts[1].p_memsz = MAPPED;
    for (int number = 0; number < 1000; number++)
        *(char *volatile *)malloc(100) = NULL;
    park();
}
