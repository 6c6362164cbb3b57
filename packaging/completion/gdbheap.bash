# Completion of gdbheap for bash. The program lists the possible words; bash completes file names.
_gdbheap()
{
    local line="${COMP_LINE:0:COMP_POINT}" found
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    mapfile -t found < <(command gdbheap --complete "${words[@]:1}" 2>/dev/null)
    COMPREPLY=("${found[@]%% *}")
    # bash takes the part before "=" as a separate word.
    [[ ${words[-1]} == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _gdbheap gdbheap
