// What kernels and those who launch them agree on. The plugin includes this file, NVRTC is given
// it, and memonger/bench/kernels/sources.py reads its constants and structs.
#pragma once

enum {
  kThreads = 256,        // of a block, in every launch
  kElements = 8,         // of a thread of an element-wise kernel: the bits of a byte
  kStatesOfBlock = 8,    // random states of a block of dropout_forward: whole bytes of mask
  kOutputsOfThread = 4,  // of max_pool_forward
  kInputsOfThread = 4    // of max_pool_backward, in one line
};

// n / by for 0 <= n < 2^31, without a division (Granlund and Montgomery, PLDI 1994): the upper half
// of n * factor, shifted; n itself where by is 1.
struct Divider {
  int by;
  unsigned factor;
  int shift;
};

// A pooling. Data is (rows, d, h, w, channels); channels are 1 unless they are last, and absent
// axes have one element.
struct Pool {
  int size[3], window[3], pad[3], output[3];
  Divider stride[3], channels, outputs[3], sizes[3];
  Divider groups;    // of outputs: what a thread of forward has of a row
  Divider segments;  // of inputs: what a thread of backward has of a line
  int paired;        // a byte has the numbers of two maxima
  int words;         // each number is an int
};
