/*
 * abi_gcc48.h -- make g++ >= 5 (tested: 12) lay out and call std::function and the
 * std::unordered containers exactly as libstdc++ of GCC 4.8 did.
 *
 * The PyPI wheels of MXNet 1.9.1 were compiled by GCC 4.8.5.  Three things in
 * libstdc++ changed since, in ways that matter to a plugin that shares C++
 * objects with libmxnet.so:
 *   1. std::string / std::list          -> -D_GLIBCXX_USE_CXX11_ABI=0 restores them;
 *   2. std::function's invoker took its arguments as `Args...`, now `Args&&...`;
 *   3. std::unordered_{map,set} were 48 bytes, now 56 (a "single bucket" was
 *      added, and an empty table no longer owns heap buckets).
 * This file partially specialises the std templates (for the standard allocator)
 * with the old layout.  A specialisation has the same mangled name as the primary
 * template, so exported symbols and typeid() names of libmxnet.so match, and
 * MXNet's own headers can be used unchanged.
 *
 * Use:  g++ -include abi_gcc48.h -D_GLIBCXX_USE_CXX11_ABI=0 -fabi-version=2 ...
 * It must come before every other header (hence -include).
 */
#ifndef MEMONGER_MXNET_ABI_GCC48_H_
#define MEMONGER_MXNET_ABI_GCC48_H_

#include <string>

#if !defined(__GLIBCXX__)
#error "abi_gcc48.h: libstdc++ is required"
#endif
#if _GLIBCXX_USE_CXX11_ABI
#error "abi_gcc48.h: compile with -D_GLIBCXX_USE_CXX11_ABI=0"
#endif

#include "gcc48/function.h"
#include "gcc48/unordered.h"

namespace std {

static_assert(sizeof(function<void(int)>) == 32, "std::function layout");
static_assert(sizeof(unordered_map<string, string>) == 48, "std::unordered_map layout");
static_assert(sizeof(unordered_set<int>) == 48, "std::unordered_set layout");
static_assert(sizeof(string) == 8, "std::string layout");

}  // namespace std

#endif  // MEMONGER_MXNET_ABI_GCC48_H_
