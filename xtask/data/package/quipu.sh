#!/bin/sh
# Becomes the program for this machine: nothing stays between it and who started it.
self=$(readlink -f -- "$0") || self=$0
case $(uname -m) in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) machine=$(uname -m) ;;
esac
program=${self%/*}/$machine/quipu
if [ ! -f "$program" ]; then
  echo "quipu: this package has no program for $(uname -s) on $machine; install Quipu from its source: cargo install --path crates/cli" >&2
  exit 1
fi
exec "$program" "$@"
