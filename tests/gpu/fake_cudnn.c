/*
 * A cuDNN 8 that succeeds and computes nothing. PRETEND_NORMS: a file with one line for each
 * training pass of a BatchNorm: the factor with which it moves the averages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
} Performance;

size_t cudnnGetVersion(void) { return 8101; }
const char* cudnnGetErrorString(int code) { return "pretended error"; }

int cudnnBatchNormalizationForwardTraining(void* handle, int mode, const void* alpha,
                                           const void* beta, void* x_shape, const void* x,
                                           void* y_shape, void* y, void* shape, const void* scale,
                                           const void* bias, double factor) {
  const char* path = getenv("PRETEND_NORMS");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return 0;
  fprintf(file, "%.4f\n", factor);
  fclose(file);
  return 0;
}

#define COUNT(name) \
  int name(void* handle, int* count) { return *count = 1, 0; }
COUNT(cudnnGetConvolutionForwardAlgorithmMaxCount)
COUNT(cudnnGetConvolutionBackwardDataAlgorithmMaxCount)
COUNT(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount)

#define ALGORITHM(name)                                                                   \
  int name(void* handle, void* a, void* b, void* c, void* d, int wanted, int* found,      \
           Performance* performance) {                                                    \
    memset(performance, 0, sizeof(Performance));                                          \
    performance->algorithm = 1;                                                           \
    performance->time = 1;                                                                \
    performance->determinism = 1;                                                         \
    return *found = 1, 0;                                                                 \
  }
ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7)
ALGORITHM(cudnnFindConvolutionForwardAlgorithm)
ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7)
ALGORITHM(cudnnFindConvolutionBackwardDataAlgorithm)
ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
ALGORITHM(cudnnFindConvolutionBackwardFilterAlgorithm)

#define WORKSPACE(name)                                                                    \
  int name(void* handle, void* a, void* b, void* c, void* d, int algorithm, size_t* size) { \
    return *size = 0, 0;                                                                   \
  }
WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize)
WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize)
WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize)

int cudnnDropoutGetStatesSize(void* handle, size_t* size) { return *size = 1 << 20, 0; }
int cudnnDropoutGetReserveSpaceSize(void* shape, size_t* size) { return *size = 64, 0; }
