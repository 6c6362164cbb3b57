# Completion of gdbheap for bash: the program says what a word may become; files are bash's own.
_gdbheap()
{
    local line="${COMP_LINE:0:COMP_POINT}" found
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    mapfile -t found < <(command gdbheap --complete "${words[@]:1}" 2>/dev/null)
    COMPREPLY=("${found[@]%% *}")
    # What stands before "=" is a word of its own here.
    [[ ${words[-1]} == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _gdbheap gdbheap
