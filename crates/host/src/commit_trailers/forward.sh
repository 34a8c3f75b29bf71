#!/bin/sh
# Made by Quipu. Runs the hook of the same name that git would run here without Quipu.
hook=$(env "GIT_CONFIG_VALUE_${QUIPU_GIT_CONFIG_COUNT:-0}=/dev/null" git rev-parse --git-path "hooks/${0##*/}") || exit
[ -x "$hook" ] && [ ! -d "$hook" ] || exit 0
exec "$hook" "$@"
