/*
 * A CUDA driver with pretended GPUs, one by default, whose memory is the host's.
 *
 * Modules made by the pretended NVRTC really run, on the CPU; real machine code is accepted, and
 * its launches are recorded only. PRETEND_LAUNCHES: a file that gets one line for each launch:
 * kernel, blocks, threads, bytes of shared memory, device. PRETEND_CAPABILITY: 90 by default.
 * PRETEND_DEVICES: how many there are. PRETEND_LAUNCH_CODE: the error of every launch.
 * PRETEND_IDLE: nothing is run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Launcher)(void**, unsigned, unsigned, unsigned);
typedef struct {
  char* name;
  Launcher launcher;  /* NULL: not run */
  void* context;      /* where its module was loaded */
} Function;

static long contexts[8];  /* one a device */
static __thread void* current;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const char machine_code[] = "machine code";

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int* version) { return *version = 11080, 0; }
static int devices(void) {
  const char* count = getenv("PRETEND_DEVICES");
  return count ? atoi(count) : 1;
}
int cuDeviceGetCount(int* count) { return *count = devices(), 0; }
int cuDeviceGet(int* device, int number) { return *device = number, number < devices() ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void** result, int device) {
  return *result = contexts + device, device < devices() ? 0 : 101;
}
int cuCtxGetCurrent(void** result) { return *result = current, 0; }
int cuCtxSetCurrent(void* wanted) { return current = wanted, 0; }

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const char* text = getenv("PRETEND_CAPABILITY");
  const int capability = text ? atoi(text) : 90;
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  return snprintf(name, size, "Pretended GPU"), 0;
}
int cuDeviceTotalMem_v2(size_t* size, int device) { return *size = 64 << 20, 0; }

int cuMemAlloc_v2(unsigned long long* memory, size_t size) {
  return (*memory = (unsigned long long)malloc(size)) ? 0 : 2;
}
int cuMemFree_v2(unsigned long long memory) { return free((void*)memory), 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t size) {
  return memcpy((void*)to, from, size), 0;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t size) {
  return memcpy(to, (void*)from, size), 0;
}
/* Launches and copies, in all and at the last two events: each takes a millisecond. */
static int started, started_at[2];

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t size, void* stream) {
  ++started;
  return memcpy((void*)to, (void*)from, size), stream != NULL;
}
int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t size) {
  return memset((void*)to, value, size), 0;
}
int cuEventCreate(void** event, unsigned flags) { return *event = contexts, flags; }
int cuEventRecord(void* event, void* stream) {
  (void)event;
  started_at[0] = started_at[1];
  started_at[1] = started;
  return stream != NULL;
}
int cuEventSynchronize(void* event) { return event != contexts; }
int cuEventElapsedTime(float* ms, void* first, void* last) {
  *ms = started_at[1] - started_at[0];
  return first != last;
}
int cuStreamSynchronize(void* stream) { return 0; }
int cuCtxSynchronize(void) { return 0; }

int cuModuleLoadData(void** module, const void* image) {
  if (!strncmp(image, "EMULATED ", 9)) {
    if (!current) return 201;  /* the runtime made one current for MXNet's own calls */
    *module = dlopen((const char*)image + 9, RTLD_NOW | RTLD_LOCAL);
    return *module ? 0 : 200;
  }
  *module = (void*)machine_code;
  return strncmp(image, "\x7f" "ELF", 4) && strncmp(image, "//", 2) ? 200 : 0;
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned n, void* a, void* b) {
  (void)n, (void)a, (void)b;
  return cuModuleLoadData(module, image);
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  char symbol[200];
  Function* f = malloc(sizeof(Function));
  snprintf(symbol, sizeof symbol, "launch_%s", name);
  f->name = strdup(name);
  f->launcher = module == machine_code ? NULL : (Launcher)dlsym(module, symbol);
  f->context = current;
  if (module != machine_code && !f->launcher) return 500;
  *function = f;
  return 0;
}

int cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void* stream, void** arguments,
                   void** extra) {
  (void)stream, (void)extra;
  ++started;
  if (current != f->context && f->launcher) return 201;
  if (gy != 1 || gz != 1 || by != 1 || bz != 1 || bx > 1024 || bx == 0 || gx == 0) return 1;
  const char* code = getenv("PRETEND_LAUNCH_CODE");
  if (code) return atoi(code);
  pthread_mutex_lock(&one_at_a_time);
  const char* path = getenv("PRETEND_LAUNCHES");
  FILE* log = path ? fopen(path, "a") : NULL;
  if (log) {
    fprintf(log, "%s %u %u %u %ld\n", f->name, gx, bx, shared_bytes,
            current ? (long*)current - contexts : 0);
    fclose(log);
  }
  if (f->launcher && !getenv("PRETEND_IDLE")) f->launcher(arguments, gx, bx, shared_bytes);
  pthread_mutex_unlock(&one_at_a_time);
  return 0;
}

int cuGetErrorString(int code, const char** text) {
  *text = code == 201 ? "invalid device context" : code == 200 ? "device kernel image is invalid"
                                                               : "pretended error";
  return 0;
}
int cuGetErrorName(int code, const char** text) { return cuGetErrorString(code, text); }
