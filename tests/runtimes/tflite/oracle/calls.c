/* Records every call that the interpreter's allocator gets while it starts: entries of its virtual
 * tables are replaced by functions that write down the call and pass it on. */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define MOST 1000000
typedef struct { int64_t what, size, align; } Call;
Call calls[MOST];
int64_t count = 0;
int recording = 0;

static void note(int64_t what, int64_t size, int64_t align) {
  if (recording && count < MOST) {
    Call call = {what, size, align};
    calls[count++] = call;
  }
}

typedef uint8_t *(*Take)(void *, size_t, size_t);
typedef int (*Resize)(void *, uint8_t *, size_t, size_t);
typedef int (*Release)(void *);
typedef int (*Reserve)(void *, size_t, size_t);
static Take hold, keep, keep_thunk;
static Resize resize;
static Release release;
static Reserve reserve;

static uint8_t *on_hold(void *t, size_t s, size_t a) { note('h', s, a); return hold(t, s, a); }
static uint8_t *on_keep(void *t, size_t s, size_t a) { note('k', s, a); return keep(t, s, a); }
static uint8_t *on_thunk(void *t, size_t s, size_t a) {
  note('k', s, a);
  return keep_thunk(t, s, a);
}
static int on_resize(void *t, uint8_t *b, size_t s, size_t a) {
  note('r', s, a);
  return resize(t, b, s, a);
}
static int on_release(void *t) { note('x', 0, 1); return release(t); }
static int on_reserve(void *t, size_t s, size_t a) { note('v', s, a); return reserve(t, s, a); }

/* Replaces a function in a table of so many words; how many entries it had. */
int hook(uintptr_t table, int words, uintptr_t old, int which) {
  void *now = 0;
  switch (which) {
    case 0: hold = (Take)old; now = on_hold; break;
    case 1: keep = (Take)old; now = on_keep; break;
    case 2: keep_thunk = (Take)old; now = on_thunk; break;
    case 3: resize = (Resize)old; now = on_resize; break;
    case 4: release = (Release)old; now = on_release; break;
    case 5: reserve = (Reserve)old; now = on_reserve; break;
  }
  int found = 0;
  for (int at = 0; at < words; at++) {
    uintptr_t *entry = (uintptr_t *)table + at;
    if (*entry == old) {
      mprotect((void *)((uintptr_t)entry & ~4095ul), 8192, PROT_READ | PROT_WRITE);
      *entry = (uintptr_t)now;
      found++;
    }
  }
  return found;
}
