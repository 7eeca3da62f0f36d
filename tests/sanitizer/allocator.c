// Lets an ordinary valkey-server run under a sanitizer's allocator. The server calls some entry
// points that only jemalloc has, with pointers that the sanitizer's malloc made; these stand in for
// them. What it asks jemalloc about itself (mallctl) still goes there and does no harm. Loaded
// before the server's own libraries: LD_PRELOAD="libasan.so liballocator.so".
#include <stddef.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED size_t nallocx(size_t size, int flags);
EXPORTED void sdallocx(void* pointer, size_t size, int flags);

size_t nallocx(size_t size, int flags) {
  (void)flags;
  return size;
}

void sdallocx(void* pointer, size_t size, int flags) {
  (void)size;
  (void)flags;
  free(pointer);
}
