/* What kernels and those who launch them agree on. The plugin includes this file, NVRTC is given it,
 * and memonger/bench/kernels reads it: one constant and one struct a line. */
#pragma once

enum { kThreads = 256 };        /* of a block, in every launch */
enum { kElements = 8 };         /* of a thread of an element-wise kernel: the bits of a byte */
enum { kStatesOfBlock = 8 };    /* random states of a block of dropout_forward: whole bytes of mask */
enum { kOutputsOfThread = 4 };  /* of max_pool_forward */
enum { kInputsOfThread = 4 };   /* of max_pool_backward, in one line */

/* n / by for 0 <= n < 2^31, without a division (Granlund and Montgomery, PLDI 1994): the upper half of
 * n * factor, shifted; n itself where by is 1. */
struct Divider { int by; unsigned factor; int shift; };

/* A pooling. Data is (rows, d, h, w, channels); channels are 1 unless they are last, and absent axes
 * have one element. `groups` of outputs are what a thread of forward has of a row, `segments` what
 * one of backward has of a line. Numbers are bytes or words, each with one number, or a pair of four bits. */
struct Pool { int size[3]; int window[3]; int pad[3]; int output[3]; Divider stride[3]; Divider channels; Divider outputs[3]; Divider sizes[3]; Divider groups; Divider segments; int paired; int words; };
