/*
 * An NVRTC whose machine code runs on the CPU: it calls emulate.py, and its "cubin" is the path of
 * the library that comes out. Sources without our headers, MXNet's, are accepted and not run.
 * PRETEND_EMULATE is the command; PRETEND_ARCHITECTURES may name the newest architecture that it
 * knows (default 90).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct {
  char *source, *name, *log, *code;
  int headers;
  char *header[4], *header_name[4];
} Program;

static char* copy(const char* text) { return strdup(text ? text : ""); }

const char* nvrtcGetErrorString(int code) { return code ? "pretended error" : "success"; }

int nvrtcVersion(int* major, int* minor) {
  *major = 11;
  *minor = 8;
  return 0;
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = 4;
  return 0;
}

int nvrtcGetSupportedArchs(int* architectures) {
  const char* newest = getenv("PRETEND_ARCHITECTURES");
  architectures[0] = 50;
  architectures[1] = 70;
  architectures[2] = 80;
  architectures[3] = newest ? atoi(newest) : 90;
  return 0;
}

int nvrtcCreateProgram(Program** program, const char* source, const char* name, int headers,
                       const char* const* texts, const char* const* names) {
  Program* p = calloc(1, sizeof(Program));
  p->source = copy(source);
  p->name = copy(name);
  p->log = copy("");
  p->code = copy("");
  if (headers > 4) return 3;
  p->headers = headers;
  for (int i = 0; i < headers; ++i) {
    p->header[i] = copy(texts[i]);
    p->header_name[i] = copy(names[i]);
  }
  *program = p;
  return 0;
}

int nvrtcDestroyProgram(Program** program) {
  Program* p = *program;
  for (int i = 0; i < p->headers; ++i) free(p->header[i]), free(p->header_name[i]);
  free(p->source), free(p->name), free(p->log), free(p->code), free(p);
  *program = NULL;
  return 0;
}

static int write_file(const char* folder, const char* name, const char* text) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "w");
  if (!file) return 0;
  fputs(text, file);
  return fclose(file) == 0;
}

int nvrtcCompileProgram(Program* p, int count, const char* const* options) {
  char folder[] = "/tmp/pretended-nvrtc-XXXXXX", command[2000], path[600], log[8000];
  const char *bits = "32", *emulate = getenv("PRETEND_EMULATE");
  for (int i = 0; i < count; ++i) {
    if (!strncmp(options[i], "-DREAL_BITS=", 12)) bits = options[i] + 12;
  }
  if (!p->headers || strcmp(p->header_name[0], "real.cuh")) {
    free(p->code);
    p->code = copy("// not run");
    return 0;
  }
  if (!emulate || !mkdtemp(folder)) return 11;
  if (!write_file(folder, p->name, p->source)) return 11;
  for (int i = 0; i < p->headers; ++i) {
    if (!write_file(folder, p->header_name[i], p->header[i])) return 11;
  }
  snprintf(path, sizeof path, "%s/kernels.so", folder);
  snprintf(command, sizeof command, "LD_LIBRARY_PATH= %s %s/%s %s %s %s 2>&1", emulate, folder,
           p->name, folder, bits, path);
  FILE* pipe = popen(command, "r");
  if (!pipe) return 11;
  const size_t size = fread(log, 1, sizeof log - 1, pipe);
  log[size] = 0;
  free(p->log);
  p->log = copy(log);
  if (pclose(pipe) != 0) return 6;
  snprintf(command, sizeof command, "EMULATED %s", path);
  free(p->code);
  p->code = copy(command);
  return 0;
}

int nvrtcGetLoweredName(Program* p, const char* name, const char** lowered) {
  return *lowered = name, 0;
}

#define GIVE(size_name, name, field)                 \
  int size_name(Program* p, size_t* size) {          \
    *size = strlen(p->field) + 1;                    \
    return 0;                                        \
  }                                                  \
  int name(Program* p, char* text) {                 \
    strcpy(text, p->field);                          \
    return 0;                                        \
  }
GIVE(nvrtcGetProgramLogSize, nvrtcGetProgramLog, log)
GIVE(nvrtcGetCUBINSize, nvrtcGetCUBIN, code)
GIVE(nvrtcGetPTXSize, nvrtcGetPTX, code)
