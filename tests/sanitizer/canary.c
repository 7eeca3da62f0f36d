// A module with a planted fault: unless the sanitizer reports it from inside a server, a clean run
// means nothing. See canary.sh.
#include <pthread.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int ValkeyModule_OnLoad(void* ctx, void** argv, int argc);

#if defined(__SANITIZE_THREAD__)

static int shared;

static void* write_shared(void* value) {
  shared = *(const int*)value;
  return NULL;
}

static void fault(void) {
  pthread_t thread;
  int value = 1;
  if (pthread_create(&thread, NULL, write_shared, &value) != 0) return;
  shared = 2;  // no order with the thread's write, whichever comes first
  pthread_join(thread, NULL);
}

#else

static void fault(void) {
  volatile size_t size = 8;  // so that the compiler does not see it
  volatile char* bytes = malloc(size);
  bytes[size] = 1;
  free((void*)bytes);
}

#endif

int ValkeyModule_OnLoad(void* ctx, void** argv, int argc) {
  (void)ctx;
  (void)argv;
  (void)argc;
  fault();
  return 1;  // the server ends by itself when nothing was reported
}
