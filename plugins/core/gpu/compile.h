/*
 * Kernel sources to machine code, once for each architecture and number type.
 *
 * The result is kept in MEMONGER_CACHE_DIR, else $XDG_CACHE_HOME/memonger, else ~/.cache/memonger,
 * under a name that holds the hash of all that went into it; a cache that cannot be used is no
 * error.
 */
#ifndef MEMONGER_CORE_GPU_COMPILE_H_
#define MEMONGER_CORE_GPU_COMPILE_H_

#include <string>
#include <vector>

namespace memonger {
namespace gpu {

// Architectures that NVRTC compiles for, such as 80 for sm_80.
std::vector<int> Architectures();

// Machine code of `file` in `folder` for `bits` = 16, 32 or 64 and sm_<architecture>; for devices
// newer than NVRTC, PTX of the newest architecture that it knows. Throws std::runtime_error with
// the log.
std::string CompileKernels(const std::string& folder, const std::string& file, int bits,
                           int architecture, bool use_cache = true);

}  // namespace gpu
}  // namespace memonger

#endif  // MEMONGER_CORE_GPU_COMPILE_H_
