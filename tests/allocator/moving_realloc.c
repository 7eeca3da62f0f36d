// An allocator that takes the licence that realloc() gives it: a large block that shrinks moves,
// and its old place is scribbled over. It lets other threads run before it does so. The usual
// allocators shrink large blocks in place, so code that still reads the old block goes unnoticed
// with them. Loaded by LD_PRELOAD in front of the real one.
//
// $FARLIFT_MOVES names a file of 8 bytes in which the moves are counted, so that a test can tell
// that there were any.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { kMovedBytesMin = 65536, kScribble = 0xDD, kPiece = 65536, kPauseUs = 500 };

static unsigned long* moves;

__attribute__((constructor)) static void open_count(void) {
  const char* path = getenv("FARLIFT_MOVES");
  const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* mapped = mmap(NULL, sizeof *moves, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) moves = mapped;
}

EXPORTED void* realloc(void* pointer, size_t size);

void* realloc(void* pointer, size_t size) {
  static void* (*next)(void*, size_t);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "realloc");
  const size_t had = pointer != NULL ? malloc_usable_size(pointer) : 0;
  if (size < kMovedBytesMin || size >= had) return next(pointer, size);
  void* moved = malloc(size);
  if (moved == NULL) return NULL;
  usleep(kPauseUs);
  // The end first, and at once: whoever reads the old block from its start meets it.
  for (size_t left = had; left > 0;) {
    const size_t piece = left < kPiece ? left : kPiece;
    left -= piece;
    char* from = (char*)pointer + left;
    if (left < size) memcpy((char*)moved + left, from, left + piece < size ? piece : size - left);
    memset(from, kScribble, piece);
  }
  free(pointer);
  if (moves != NULL) __atomic_add_fetch(moves, 1, __ATOMIC_RELAXED);
  return moved;
}
