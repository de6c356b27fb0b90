/*
 * The CUDA driver and NVRTC, found with dlopen: we are built without any CUDA header and load on
 * machines that have neither. A missing library is an error only when a kernel is wanted.
 */
#ifndef MEMONGER_CORE_GPU_LIBRARIES_H_
#define MEMONGER_CORE_GPU_LIBRARIES_H_

#include <cstddef>
#include <string>

namespace memonger {
namespace gpu {

using Code = int;  // 0 is success, in both libraries
using DeviceNumber = int;
using Handle = void*;  // contexts, modules, functions, streams, programs

struct Driver {
  Code (*get_device)(DeviceNumber*, int);
  Code (*get_attribute)(int*, int, DeviceNumber);
  Code (*retain_context)(Handle*, DeviceNumber);
  Code (*get_current)(Handle*);
  Code (*set_current)(Handle);
  Code (*load_module)(Handle*, const void*);
  Code (*get_function)(Handle*, Handle, const char*);
  Code (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                 Handle, void**, void**);
  Code (*wait)(Handle);
  Code (*error_text)(Code, const char**);

  std::string Describe(Code code) const;
};

struct Nvrtc {
  Code (*version)(int*, int*);
  Code (*count_architectures)(int*);
  Code (*architectures)(int*);
  Code (*create)(Handle*, const char*, const char*, int, const char* const*, const char* const*);
  Code (*destroy)(Handle*);
  Code (*compile)(Handle, int, const char* const*);
  Code (*log_size)(Handle, size_t*);
  Code (*log)(Handle, char*);
  Code (*cubin_size)(Handle, size_t*);
  Code (*cubin)(Handle, char*);
  Code (*ptx_size)(Handle, size_t*);
  Code (*ptx)(Handle, char*);
  std::string name;  // as it was opened
};

// Loaded at the first call. Throws std::runtime_error, saying what was tried, where there is none.
const Driver& GetDriver();
const Nvrtc& GetNvrtc();

}  // namespace gpu
}  // namespace memonger

#endif  // MEMONGER_CORE_GPU_LIBRARIES_H_
