#!/bin/sh
# usage: discount.sh PRICE PERCENT
# Prints the price after a discount of PERCENT per cent.
price=$1
percent=$2
echo "$((price - percent))"
