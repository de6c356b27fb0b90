/*
 * A CUDA 11 runtime with pretended GPUs, one by default, whose memory is the host's.
 *
 * Copies and fills happen; kernels are accepted and not run, so what MXNet's own kernels should
 * have written is what was there before (zero in fresh memory).
 * PRETEND_DEVICES: how many there are. PRETEND_MEMORY: bytes of each (64 GiB). PRETEND_ALLOCATIONS:
 * a file with one line for each allocation (+) and release (-): sign and bytes as asked for.
 * PRETEND_IDLE: no copies and fills, so that memory which is counted is not touched.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
  unsigned x, y, z;
} Dimensions;
typedef struct Block {
  void* memory;
  size_t asked, bytes;
  int device;
  struct Block* next;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block* blocks;
static size_t used[8];
static __thread int current;

static size_t capacity(void) {
  const char* text = getenv("PRETEND_MEMORY");
  return text ? strtoull(text, NULL, 0) : (size_t)64 << 30;
}

static void record(char sign, size_t bytes) {
  const char* path = getenv("PRETEND_ALLOCATIONS");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%c %zu\n", sign, bytes);
  fclose(file);
}

/* ---- devices */
static int devices(void) {
  const char* text = getenv("PRETEND_DEVICES");
  return text ? atoi(text) : 1;
}
int cudaGetDeviceCount(int* count) { return *count = devices(), 0; }
int cudaGetDevice(int* device) { return *device = current, 0; }
int cudaSetDevice(int device) {
  if (device >= devices()) return 101;
  return current = device, 0;
}
int cudaDriverGetVersion(int* version) { return *version = 11080, 0; }
int cudaDeviceCanAccessPeer(int* can, int a, int b) { return *can = 0, 0; }
int cudaDeviceGetP2PAttribute(int* value, int a, int b, int c) { return *value = 0, 0; }
const char* cudaGetErrorString(int code) { return code == 2 ? "out of memory" : "pretended error"; }
const char* cudaGetErrorName(int code) { return cudaGetErrorString(code); }

static int capability(void) {
  const char* text = getenv("PRETEND_CAPABILITY");
  return text ? atoi(text) : 90;
}

int cudaMemGetInfo(size_t* left, size_t* all) {
  *all = capacity();
  *left = *all - used[current];
  return 0;
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: *value = 1024; break;                            /* threads of a block */
    case 2: case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 5: *value = 0x7fffffff; break;                      /* blocks of a grid */
    case 6: case 7: *value = 65535; break;
    case 8: *value = 49152; break;                           /* shared memory of a block */
    case 10: *value = 32; break;                             /* warp */
    case 12: *value = 65536; break;                          /* registers of a block */
    case 16: *value = 132; break;                            /* multiprocessors */
    case 39: *value = 2048; break;                           /* threads of a multiprocessor */
    case 75: *value = capability() / 10; break;
    case 76: *value = capability() % 10; break;
    default: *value = 0;
  }
  return 0;
}

int cudaGetDeviceProperties(char* p, int device) {  /* offsets of struct cudaDeviceProp */
  memset(p, 0, 700);
  strcpy(p, "pretended GPU");
  *(size_t*)(p + 288) = capacity();
  *(size_t*)(p + 296) = 49152;
  *(int*)(p + 304) = 65536;
  *(int*)(p + 308) = 32;
  *(int*)(p + 320) = 1024;
  ((int*)(p + 324))[0] = ((int*)(p + 324))[1] = 1024;
  ((int*)(p + 324))[2] = 64;
  ((int*)(p + 336))[0] = 0x7fffffff;
  ((int*)(p + 336))[1] = ((int*)(p + 336))[2] = 65535;
  *(int*)(p + 360) = capability() / 10;
  *(int*)(p + 364) = capability() % 10;
  return 0;
}

int cudaFuncGetAttributes(char* a, const void* function) {
  memset(a, 0, 48);
  *(int*)(a + 24) = 1024; /* threads of a block */
  *(int*)(a + 28) = 32;   /* registers */
  return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void* f, int b,
                                                           size_t s, unsigned flags) {
  return *count = 2, 0;
}

/* ---- memory */
int cudaMalloc(void** memory, size_t bytes) {
  *memory = NULL;
  if (!bytes) return 0;
  pthread_mutex_lock(&lock);
  int code = 2;
  const size_t taken = (bytes + 511) & ~(size_t)511;
  if (used[current] + taken <= capacity()) {
    void* found = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) {
      Block* block = malloc(sizeof(Block));
      block->memory = *memory = found;
      block->asked = bytes;
      block->bytes = taken;
      block->device = current;
      block->next = blocks;
      blocks = block;
      used[current] += taken;
      record('+', bytes);
      code = 0;
    }
  }
  pthread_mutex_unlock(&lock);
  return code;
}

int cudaFree(void* memory) {
  if (!memory) return 0;
  pthread_mutex_lock(&lock);
  int code = 17;
  for (Block** at = &blocks; *at; at = &(*at)->next) {
    if ((*at)->memory != memory) continue;
    Block* block = *at;
    *at = block->next;
    used[block->device] -= block->bytes;
    record('-', block->asked);
    munmap(block->memory, block->bytes);
    free(block);
    code = 0;
    break;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

int cudaMallocPitch(void** memory, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) & ~(size_t)511;
  return cudaMalloc(memory, *pitch * height);
}

int cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return posix_memalign(memory, 4096, bytes ? bytes : 1) ? 2 : 0;
}
int cudaFreeHost(void* memory) { return free(memory), 0; }

static int move(void* to, const void* from, size_t n) {
  if (!getenv("PRETEND_IDLE")) memmove(to, from, n);
  return 0;
}

int cudaMemcpy(void* to, const void* from, size_t n, int kind) { return move(to, from, n); }
int cudaMemcpyAsync(void* to, const void* from, size_t n, int kind, void* stream) {
  return move(to, from, n);
}
int cudaMemcpyPeerAsync(void* to, int a, const void* from, int b, size_t n, void* stream) {
  return move(to, from, n);
}
int cudaMemcpy2DAsync(char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t width,
                      size_t height, int kind, void* stream) {
  for (size_t i = 0; i < height; ++i) move(to + i * to_pitch, from + i * from_pitch, width);
  return 0;
}
int cudaMemsetAsync(void* to, int value, size_t n, void* stream) {
  if (!getenv("PRETEND_IDLE")) memset(to, value, n);
  return 0;
}

/* ---- streams, events, kernels */
int cudaStreamCreate(void** stream) { return *stream = malloc(16), 0; }
int cudaStreamDestroy(void* stream) { return free(stream), 0; }
int cudaStreamBeginCapture(void* stream, int mode) { return 801; }
int cudaStreamEndCapture(void* stream, void** graph) { return *graph = NULL, 801; }
int cudaEventCreateWithFlags(void** event, unsigned flags) { return *event = malloc(16), 0; }
int cudaEventDestroy(void* event) { return free(event), 0; }
void** __cudaRegisterFatBinary(void* code) { return malloc(16); }
char __cudaInitModule(void** module) { return 1; }

static __thread struct {
  Dimensions grid, block;
  size_t shared;
  void* stream;
} pushed[16];
static __thread int depth;

unsigned __cudaPushCallConfiguration(Dimensions grid, Dimensions block, size_t shared,
                                     void* stream) {
  pushed[depth].grid = grid;
  pushed[depth].block = block;
  pushed[depth].shared = shared;
  pushed[depth++].stream = stream;
  return 0;
}

int __cudaPopCallConfiguration(Dimensions* grid, Dimensions* block, size_t* shared,
                               void** stream) {
  *grid = pushed[--depth].grid;
  *block = pushed[depth].block;
  *shared = pushed[depth].shared;
  *stream = pushed[depth].stream;
  return 0;
}
