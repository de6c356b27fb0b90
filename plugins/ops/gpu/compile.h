/*
 * Kernel sources to machine code, once for each architecture and number type.
 *
 * Sources are the files of the folder `cuda` beside the plugin. The result is kept in
 * MEMONGER_CACHE_DIR, else $XDG_CACHE_HOME/memonger, else ~/.cache/memonger, under a name that
 * holds the hash of all that went into it; a cache that cannot be used is no error.
 */
#ifndef MEMONGER_OPS_GPU_COMPILE_H_
#define MEMONGER_OPS_GPU_COMPILE_H_

#include <string>

namespace memonger {
namespace gpu {

// The folder of the kernel sources.
std::string KernelFolder();

// Machine code of cuda/<file> for `bits` = 16, 32 or 64 and sm_<architecture>; for devices newer
// than NVRTC, PTX of the newest architecture that it knows. Throws dmlc::Error with the log.
std::string CompileKernels(const std::string& file, int bits, int architecture,
                           bool use_cache = true);

}  // namespace gpu
}  // namespace memonger

#endif  // MEMONGER_OPS_GPU_COMPILE_H_
