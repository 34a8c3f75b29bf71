#!/bin/sh
# Checks discount.sh.
failed=0
check() {
    got=$(sh ./discount.sh "$1" "$2")
    if [ "$got" = "$3" ]; then
        echo "ok discount $1 $2"
    else
        echo "FAIL discount $1 $2: expected $3, got $got"
        failed=1
    fi
}
check 100 10 90
check 200 10 180
check 50 0 50
[ "$failed" = 0 ] && echo PASS
exit "$failed"
