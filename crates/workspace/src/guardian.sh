# Ends what an agent started when the agent is gone, however it went.
# $1: how the marks of its processes begin. $2: where grep is. stdin: "+ GROUP" and "- GROUP" lines; its end is the agent's end.
grep=$2
trap '' HUP INT TERM QUIT TSTP
groups=
while read -r sign group; do
  case $sign in
    +) groups="$groups $group" ;;
    -)
      kept=
      for each in $groups; do [ "$each" = "$group" ] || kept="$kept $each"; done
      groups=$kept
      ;;
  esac
done
# Descendants, while their parents can still be named. Each is stopped first, so that none is born behind our
# back. The guardians of other agents look after themselves.
below() {
  for thread in "/proc/$1/task"/*/children; do
    children=
    read -r children 2>/dev/null <"$thread"
    for child in $children; do
      "$grep" -qsF QUIPU_GUARDIAN= "/proc/$child/environ" && continue
      kill -STOP "$child" 2>/dev/null
      tree="$tree $child"
      below "$child"
    done
  done
}
[ -r /proc/self/environ ] && linux=1
tree=
if [ -n "$linux" ]; then
  for each in $groups; do kill -STOP "-$each" 2>/dev/null; done
  for each in $groups; do below "$each"; done
fi
for each in $groups; do kill -KILL "-$each" 2>/dev/null; done
for each in $tree; do kill -KILL "$each" 2>/dev/null; done
# Who left its group still carries the mark. Again until none is left: they may be forking.
round=0
while [ -n "$linux" ] && [ $round -lt 50 ]; do
  tree=
  for each in $("$grep" -lsF "$1" /proc/[0-9]*/environ 2>/dev/null); do
    each=${each#/proc/}
    each=${each%/environ}
    kill -STOP "$each" 2>/dev/null
    tree="$tree $each"
    below "$each"
  done
  [ -n "$tree" ] || break
  for each in $tree; do kill -KILL "$each" 2>/dev/null; done
  round=$((round + 1))
done
