# bash completion for shoal. Commands, flags and names come from the program itself, so that this
# file never falls behind it.
# shellcheck shell=bash

# The long flags that a help text names.
_shoal_flags() {
    "$@" --help 2>/dev/null | sed -E 's/--\[no-\]([a-z-]+)/--\1 --no-\1/' |
        grep -oE -- '--[a-z][a-z0-9-]*' | sort -u
}

# The registry prints a name first in each row.
_shoal_names() {
    "$1" list "$2" 2>/dev/null | sed -nE 's/^  ([a-z0-9_-]+) .*/\1/p'
}

# _shoal_choices FLAG PROGRAM...   the values of a flag that has only a few: its help ends with
# ": a, b, c (default a)", wrapped over lines, or begins with "--flag a|b".
_shoal_choices() {
    local flag=$1
    shift
    "$@" --help 2>/dev/null | awk -v flag="$flag" '
        /^ *-/ { on = $1 == flag || $2 == flag; if (on && $2 ~ /\|/) values = $2 }
        /^ *$/ { on = 0 }
        on { sub(/^ +/, ""); text = text " " $0 }
        END {
            sub(/ \(default [^()]*\)$/, "", text)
            count = split(text, parts, ": ")
            if (parts[count] ~ /^[a-z0-9-]+(, [a-z0-9-]+)+$/) values = parts[count]
            gsub(/[|,]/, " ", values)
            print values
        }'
}

# _shoal_offer WORDS WORD   adds those that WORD begins; of a list "a,b", its last name is the word.
_shoal_offer() {
    local last=${2##*,}
    local more=()
    mapfile -t more < <(compgen -P "${2%"$last"}" -W "$1" -- "$last")
    COMPREPLY+=("${more[@]}")
}

_shoal_offer_files() {
    local more=()
    mapfile -t more < <(compgen -f -- "$1")
    COMPREPLY+=("${more[@]}")
    compopt -o filenames 2>/dev/null || true
}

_shoal_offer_value() { # FLAG WORD PROGRAM COMMAND [TOPIC]
    local flag=$1 word=$2
    shift 2
    case $flag in
    --model) _shoal_offer "$(_shoal_names "$1" models)" "$word" ;;
    --sync) _shoal_offer "$(_shoal_names "$1" sync)" "$word" ;;
    --graph) _shoal_offer "$(_shoal_names "$1" graphs)" "$word" ;;
    --compress) _shoal_offer "none $(_shoal_names "$1" codecs)" "$word" ;;
    --data | --test-data | --validation-data)
        _shoal_offer "$(_shoal_names "$1" data)" "$word"
        _shoal_offer_files "$word"
        ;;
    *)
        local choices
        choices=$(_shoal_choices "$flag" "$@")
        if [ -n "$choices" ]; then _shoal_offer "$choices" "$word"; else _shoal_offer_files "$word"; fi
        ;;
    esac
}

_shoal() {
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]:-}
    COMPREPLY=()

    if [ "$COMP_CWORD" -eq 1 ]; then
        _shoal_offer "$(_shoal_names "$program" commands) help --help --version" "$word"
        return
    fi
    local asked=("$program" "$command")
    case $command in
    explain | bench) # what they are about decides their flags
        [ "$COMP_CWORD" -le 2 ] || asked+=("${COMP_WORDS[2]}")
        ;;
    esac
    case $word in
    -*)
        _shoal_offer "$(_shoal_flags "${asked[@]}")" "$word"
        return
        ;;
    esac
    case $command,$previous in
    help,help) _shoal_offer "$(_shoal_names "$program" commands)" "$word" ;;
    list,list) _shoal_offer "$("$program" list 2>/dev/null | grep -v '^ ')" "$word" ;;
    data,data) _shoal_offer "get info check" "$word" ;;
    data,get) _shoal_offer "$(_shoal_names "$program" data)" "$word" ;;
    bench,bench) _shoal_offer "train allreduce hogwild" "$word" ;;
    explain,explain)
        _shoal_offer "gossip pipeline cost $(_shoal_names "$program" collectives | sort -u)" "$word"
        _shoal_offer_files "$word"
        ;;
    explain,--algorithm | bench,--algorithm)
        _shoal_offer "$("$program" list collectives 2>/dev/null |
            sed -nE "s/^  ${COMP_WORDS[2]} ([a-z-]+) .*/\\1/p")" "$word"
        ;;
    explain,--schedule)
        if [ "${COMP_WORDS[2]}" = pipeline ]; then
            _shoal_offer "naive gpipe 1f1b interleaved:2 zb-h1 zb-h2" "$word"
        else
            _shoal_offer_value "$previous" "$word" "${asked[@]}"
        fi
        ;;
    *,--*) _shoal_offer_value "$previous" "$word" "${asked[@]}" ;;
    *) _shoal_offer_files "$word" ;;
    esac
} && complete -F _shoal shoal
