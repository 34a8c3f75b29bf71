#!/bin/sh
# Made by Quipu. Runs the hook of the same name that git would run here without Quipu, then adds the trailer that names the
# node whose command makes the commit. What goes wrong with the trailer leaves the message as it is.
name=${0##*/}
hook=$(env "GIT_CONFIG_VALUE_${QUIPU_GIT_CONFIG_COUNT:-0}=/dev/null" git rev-parse --git-path "hooks/$name") || exit
if [ -x "$hook" ] && [ ! -d "$hook" ]; then
    "$hook" "$@" || exit
fi

case $QUIPU_NODE in '' | *[!0-9a-f]*) exit 0 ;; esac
[ "${#QUIPU_NODE}" -eq 40 ] || exit 0
# A commit that is made again elsewhere keeps its message.
case $GIT_REFLOG_ACTION in rebase* | cherry-pick* | 'pull --rebase'* | 'pull -r'*) exit 0 ;; esac
for moves in CHERRY_PICK_HEAD rebase-merge/current-fixups rebase-merge/message-squash rebase-merge/message-fixup; do
    [ ! -e "$(git rev-parse --git-path "$moves")" ] || exit 0
done

case $1 in /*) file=$1 ;; *) file=$PWD/$1 ;; esac
template=${TMPDIR:-/tmp}/quipu-template-$PPID
comment=$(git config --get core.commentChar) || comment='#'
[ "${#comment}" -eq 1 ] || comment='#'

# The words of a message, without comments and without what git cuts off.
words() {
    sed '/^[^ ]* -\{24\} >8 -\{24\}$/,$d' "$file" | git stripspace "$@"
}

case $name:$2 in
prepare-commit-msg: | prepare-commit-msg:template)
    # The editor comes first: git refuses a message without words, and a template that was left as it is.
    rm -f "$template"
    # Never through a file that somebody else put there.
    [ -z "$2" ] || (umask 077 && set -C && words --strip-comments >"$template") 2>/dev/null
    exit 0
    ;;
prepare-commit-msg:message)
    # Lines that look like comments are words here.
    comment=$(printf '\001')
    found=$(words)
    ;;
*)
    found=$(words --strip-comments)
    ;;
esac
if [ "$name" = commit-msg ] && [ -f "$template" ]; then
    kept=$(cat "$template")
    rm -f "$template"
    [ "$found" != "$kept" ] || exit 0
fi
[ -n "$found" ] || exit 0
! grep -qx "Quipu-Node: $QUIPU_NODE" "$file" || exit 0
[ "$(grep -c '^Quipu-Node: ' "$file")" -lt 32 ] || exit 0

# Without any settings: those of trailers could add others.
(
    unset GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_PREFIX GIT_CONFIG_PARAMETERS
    cd / || exit
    GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=0 \
        git -c "core.commentChar=$comment" interpret-trailers --in-place --no-divider --where end \
        --if-exists addIfDifferent --if-missing add --trailer "Quipu-Node: $QUIPU_NODE" "$file"
) 2>/dev/null
exit 0
