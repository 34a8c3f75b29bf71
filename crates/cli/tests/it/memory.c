// The functions of native/memory.c against loops of single bytes: every length up to 600 and some long ones, at every
// offset by 16, with every distance between overlapping places up to 70.

#include <stdio.h>
#include <stdlib.h>

#define NAME(name) ours_##name
#include "../../native/memory.c"

enum { SIZE = 3 * 70000 };
static unsigned char before[SIZE], ours[SIZE], plain[SIZE];

static void fail(const char *name, size_t to, size_t from, size_t length) {
  fprintf(stderr, "%s: to %zu, from %zu, %zu bytes\n", name, to, from, length);
  exit(1);
}

static void same(const char *name, size_t to, size_t from, size_t length) {
  for (size_t at = 0; at < to + length + 200 && at < SIZE; at++) {
    if (ours[at] != plain[at]) fail(name, to, from, length);
  }
}

static void begin(size_t length) {
  for (size_t at = 0; at < length && at < SIZE; at++) ours[at] = plain[at] = before[at];
}

static void try_move(const char *name, int may_overlap, size_t to, size_t from, size_t length) {
  begin((to > from ? to : from) + length + 200);
  for (size_t at = 0; at < length; at++) plain[to + at] = before[from + at];
  void *back = may_overlap ? ours_memmove(ours + to, ours + from, length) : ours_memcpy(ours + to, ours + from, length);
  if (back != ours + to) fail(name, to, from, length);
  same(name, to, from, length);
}

static int sign(int number) { return (number > 0) - (number < 0); }

static void try_compare(size_t left, size_t right, size_t length) {
  begin(right + length + 200);
  for (size_t at = 0; at < length; at++) ours[right + at] = ours[left + at];
  if (ours_memcmp(ours + left, ours + right, length) || ours_bcmp(ours + left, ours + right, length)) {
    fail("memcmp of what is equal", left, right, length);
  }
  for (size_t at = 0; at < length; at += length > 64 ? length / 23 : 1) {
    for (int change = -200; change <= 200; change += 100) {
      unsigned char was = ours[right + at];
      ours[right + at] = (unsigned char)(was + change);
      // What comes behind the first difference counts for nothing.
      unsigned char behind = ours[right + length - 1];
      if (at + 1 < length) ours[right + length - 1] ^= 0xff;
      int expected = sign((int)ours[left + at] - (int)ours[right + at]);
      if (expected == 0 && at + 1 < length) {
        expected = sign((int)ours[left + length - 1] - (int)ours[right + length - 1]);
      }
      if (sign(ours_memcmp(ours + left, ours + right, length)) != expected) fail("memcmp", left, right, length);
      if (!ours_bcmp(ours + left, ours + right, length) != !expected) fail("bcmp", left, right, length);
      ours[right + length - 1] = behind;
      ours[right + at] = was;
    }
  }
}

int main(void) {
  unsigned state = 1;
  for (size_t at = 0; at < SIZE; at++) before[at] = (unsigned char)((state = state * 1103515245 + 12345) >> 16);
  const size_t lengths[] = {1000, 1023, 4095, 4096, 4097, 5000, 65536, 69999};
  for (size_t n = 0; n < 600 + sizeof lengths / sizeof *lengths; n++) {
    size_t length = n < 600 ? n : lengths[n - 600];
    for (size_t offset = 0; offset < 16; offset++) {
      try_move("memcpy", 0, 100 + offset, 70200 + 3 * offset, length);
      try_compare(offset, 70200 + 5 * offset, length);
      for (int value = 0; value < 256; value += 127) {
        begin(offset + length + 300);
        for (size_t at = 0; at < length; at++) plain[100 + offset + at] = (unsigned char)value;
        if (ours_memset(ours + 100 + offset, value - 256, length) != ours + 100 + offset) fail("memset", offset, 0, length);
        same("memset", 100 + offset, 0, length);
      }
    }
    for (size_t apart = 0; apart <= 70; apart++) {
      try_move("memmove", 1, 100 + apart, 100, length);
      try_move("memmove", 1, 100, 100 + apart, length);
    }
    try_move("memmove", 1, 70300, 100, length);
    try_move("memmove", 1, 100, 100 + length / 2, length);
    try_move("memmove", 1, 100 + length / 2, 100, length);
  }
  return 0;
}
