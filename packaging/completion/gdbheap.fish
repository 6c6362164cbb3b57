# Completion of gdbheap for fish. The program lists the possible words; fish completes file names.
function __gdbheap_complete
    command -q gdbheap; or return
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l found (command gdbheap --complete $words[2..] "$last" 2>/dev/null)
    printf '%s\n' $found | string replace ' ' \t
    if not string match -q -- '-*' "$last"
        __fish_complete_path "$last"
    else if test -z "$found"; and string match -q -- '*=*' "$last"
        set -l parts (string split -m 1 = -- "$last")
        printf "$parts[1]=%s\n" (__fish_complete_path "$parts[2]")
    end
end
complete -c gdbheap -f -a '(__gdbheap_complete)'
