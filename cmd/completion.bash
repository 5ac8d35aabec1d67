# Completes lockstep in bash: commands, options, keys of the configuration and names of files. All
# words come from the program's own pages. To use it from a clone: source cmd/completion.bash

# "train", "data prepare", ...: one a line.
_lockstep_pages() {
    "$1" help --list | sed 's/-/ /'
}

# The words that may stand behind COMMAND, one a line.
_lockstep_words() {
    if [ -z "$2" ] || [ "$2" = help ]; then
        _lockstep_pages "$1" | cut -d' ' -f1 | sort -u
        return
    fi
    local page
    page=$("$1" help $2 2>/dev/null)
    _lockstep_pages "$1" | sed -n "s/^$2 //p"
    sed -n 's/^  \(--[a-z-]*\).*/\1/p' <<<"$page"
    if [[ ${page%%$'\n'*} == *key=value* ]]; then
        "$1" help --config | sed -n 's/^  \([a-z_0-9.]*\) = .*/\1=/p'
    fi
}

_lockstep() {
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [[ $word == = || $before == = ]]; then # a value: names of files
        return
    fi
    if ((COMP_CWORD < 2)); then
        command=
    elif ((COMP_CWORD > 2)) && _lockstep_pages "$program" | grep -qx "$command ${COMP_WORDS[2]}"; then
        command+=" ${COMP_WORDS[2]}"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$(_lockstep_words "$program" "$command")" -- "$word")
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}

complete -o default -F _lockstep lockstep
