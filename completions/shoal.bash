# bash completion for shoal. Commands and flags come from the program's own help, so that this file
# never falls behind it.
# shellcheck shell=bash

# The long flags that a help text names.
_shoal_flags() {
    "$@" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u
}

# Help lists a command per line: "  train    ...".
_shoal_commands() {
    "$1" --help 2>/dev/null | sed -nE 's/^  ([a-z]+)  +.*/\1/p' | sort -u
}

_shoal_names() {
    "$1" list "$2" 2>/dev/null | sed -nE 's/^  ([a-z0-9_-]+) .*/\1/p'
}

_shoal() {
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]:-}
    COMPREPLY=()

    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_shoal_commands "$program") --help --version" -- "$word")
        return
    fi
    case $word in
    -*)
        local topic=()  # what `explain` is about decides its flags
        [ "$command" = explain ] && [ "$COMP_CWORD" -gt 2 ] && topic=("${COMP_WORDS[2]}")
        mapfile -t COMPREPLY < <(compgen -W "$(_shoal_flags "$program" "$command" "${topic[@]}")" -- "$word")
        return
        ;;
    esac
    case $command,$previous in
    data,data)
        mapfile -t COMPREPLY < <(compgen -W "get info check" -- "$word")
        ;;
    data,get)
        mapfile -t COMPREPLY < <(compgen -W "mnist digits shakespeare" -- "$word")
        ;;
    explain,explain)
        mapfile -t COMPREPLY < <(
            compgen -W "gossip $(_shoal_names "$program" collectives | sort -u)" -- "$word" || true
            compgen -f -- "$word"
        )
        ;;
    explain,--algorithm)
        mapfile -t COMPREPLY < <(compgen -W "$("$program" list collectives 2>/dev/null |
            sed -nE "s/^  ${COMP_WORDS[2]} ([a-z-]+) .*/\\1/p")" -- "$word")
        ;;
    bench,bench)
        mapfile -t COMPREPLY < <(compgen -W "train allreduce hogwild" -- "$word")
        ;;
    *,--model | *,--optimizer | *,--schedule | *,--graph)
        # The registry prints a name first in each row; a kind is the plural of its flag.
        mapfile -t COMPREPLY < <(compgen -W "$(_shoal_names "$program" "${previous#--}s")" -- "$word")
        ;;
    *,--loss)
        mapfile -t COMPREPLY < <(compgen -W "$(_shoal_names "$program" losses)" -- "$word")
        ;;
    list,list)
        mapfile -t COMPREPLY < <(compgen -W "$("$program" list 2>/dev/null | grep -v '^ ')" -- "$word")
        ;;
    *)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null || true
        ;;
    esac
} && complete -F _shoal shoal
