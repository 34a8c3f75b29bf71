// Copying, filling and comparing bytes for the static program.
//
// musl does each byte by byte at the ends of a copy, and all of a comparison: a seventh of an import's time. These take
// the widest words that every x86-64 has, in overlapping pairs, so that no length needs a loop of single bytes.
// `tests/it/memory.rs` compares them with such loops.

#include <stddef.h>
#include <stdint.h>

#ifndef NAME
#define NAME(name) name
#endif

typedef long long wide __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t u64 __attribute__((aligned(1), may_alias));
typedef uint32_t u32 __attribute__((aligned(1), may_alias));
typedef uint16_t u16 __attribute__((aligned(1), may_alias));

#define LOAD(type, at) (*(const type *)(at))
#define STORE(type, at, value) (*(type *)(at) = (value))

// From here on the processor's own copy is the fastest.
#define LONG 4096

// All is read before anything is written: the places may overlap.
static inline void copy_128(unsigned char *to, const unsigned char *from, size_t length) {
  const unsigned char *from_end = from + length;
  unsigned char *to_end = to + length;
  if (length >= 16) {
    wide a = LOAD(wide, from), z = LOAD(wide, from_end - 16);
    if (length > 32) {
      wide b = LOAD(wide, from + 16), y = LOAD(wide, from_end - 32);
      if (length > 64) {
        wide c = LOAD(wide, from + 32), d = LOAD(wide, from + 48);
        wide w = LOAD(wide, from_end - 64), x = LOAD(wide, from_end - 48);
        STORE(wide, to + 32, c);
        STORE(wide, to + 48, d);
        STORE(wide, to_end - 64, w);
        STORE(wide, to_end - 48, x);
      }
      STORE(wide, to + 16, b);
      STORE(wide, to_end - 32, y);
    }
    STORE(wide, to, a);
    STORE(wide, to_end - 16, z);
  } else if (length >= 8) {
    uint64_t a = LOAD(u64, from), z = LOAD(u64, from_end - 8);
    STORE(u64, to, a);
    STORE(u64, to_end - 8, z);
  } else if (length >= 4) {
    uint32_t a = LOAD(u32, from), z = LOAD(u32, from_end - 4);
    STORE(u32, to, a);
    STORE(u32, to_end - 4, z);
  } else if (length >= 2) {
    uint16_t a = LOAD(u16, from), z = LOAD(u16, from_end - 2);
    STORE(u16, to, a);
    STORE(u16, to_end - 2, z);
  } else if (length == 1) {
    *to = *from;
  }
}

typedef struct {
  wide a, b, c, d;
} block;

static inline block load_64(const unsigned char *from) {
  return (block){LOAD(wide, from), LOAD(wide, from + 16), LOAD(wide, from + 32), LOAD(wide, from + 48)};
}

static inline void store_64(unsigned char *to, block bytes) {
  STORE(wide, to, bytes.a);
  STORE(wide, to + 16, bytes.b);
  STORE(wide, to + 32, bytes.c);
  STORE(wide, to + 48, bytes.d);
}

// More than 128 bytes, the lower ones first. Where the places overlap, `to` lies below.
static void copy_up(unsigned char *to, const unsigned char *from, size_t length) {
  unsigned char *end = to + length - 64;
  block last = load_64(from + length - 64);
  for (unsigned char *at = to; at < end; at += 64, from += 64) store_64(at, load_64(from));
  store_64(end, last);
}

// More than 128 bytes, the upper ones first. Where the places overlap, `to` lies above.
static void copy_down(unsigned char *to, const unsigned char *from, size_t length) {
  block first = load_64(from);
  const unsigned char *source = from + length;
  for (unsigned char *at = to + length; at > to + 64;) {
    at -= 64;
    source -= 64;
    store_64(at, load_64(source));
  }
  store_64(to, first);
}

void *NAME(memcpy)(void *restrict to, const void *restrict from, size_t length) {
  if (length <= 128) {
    copy_128(to, from, length);
  } else if (length < LONG) {
    copy_up(to, from, length);
  } else {
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(length) : : "memory");
  }
  return to;
}

void *NAME(memmove)(void *to, const void *from, size_t length) {
  if (length <= 128) {
    copy_128(to, from, length);
  } else if ((uintptr_t)to - (uintptr_t)from < length) {
    copy_down(to, from, length);
  } else {
    copy_up(to, from, length);
  }
  return to;
}

void *NAME(memset)(void *to, int value, size_t length) {
  unsigned char *at = to, *end = at + length;
  uint64_t eight = 0x0101010101010101 * (uint64_t)(unsigned char)value;
  if (length >= 16) {
    wide all = {(long long)eight, (long long)eight};
    if (length >= LONG) {
      __asm__ volatile("rep stosb" : "+D"(at), "+c"(length) : "a"(value) : "memory");
      return to;
    }
    for (; end - at > 16; at += 16) STORE(wide, at, all);
    STORE(wide, end - 16, all);
  } else if (length >= 8) {
    STORE(u64, at, eight);
    STORE(u64, end - 8, eight);
  } else if (length >= 4) {
    STORE(u32, at, (uint32_t)eight);
    STORE(u32, end - 4, (uint32_t)eight);
  } else if (length >= 2) {
    STORE(u16, at, (uint16_t)eight);
    STORE(u16, end - 2, (uint16_t)eight);
  } else if (length == 1) {
    *at = (unsigned char)value;
  }
  return to;
}

// Which of two words that differ comes first in memory.
static inline int order(uint64_t left, uint64_t right) {
  return __builtin_bswap64(left) < __builtin_bswap64(right) ? -1 : 1;
}

int NAME(memcmp)(const void *left, const void *right, size_t length) {
  const unsigned char *a = left, *b = right;
  if (length >= 8) {
    const unsigned char *last = a + length - 8;
    for (; a < last; a += 8, b += 8) {
      uint64_t x = LOAD(u64, a), y = LOAD(u64, b);
      if (x != y) return order(x, y);
    }
    b -= a - last;
    uint64_t x = LOAD(u64, last), y = LOAD(u64, b);
    return x == y ? 0 : order(x, y);
  }
  if (length >= 4) {
    uint32_t x = LOAD(u32, a), y = LOAD(u32, b);
    if (x != y) return order((uint64_t)x, (uint64_t)y);
    x = LOAD(u32, a + length - 4);
    y = LOAD(u32, b + length - 4);
    return x == y ? 0 : order((uint64_t)x, (uint64_t)y);
  }
  for (; length > 0; a++, b++, length--) {
    if (*a != *b) return *a - *b;
  }
  return 0;
}

int NAME(bcmp)(const void *left, const void *right, size_t length) {
  return NAME(memcmp)(left, right, length);
}
