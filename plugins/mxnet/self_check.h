#ifndef MEMONGER_MXNET_SELF_CHECK_H_
#define MEMONGER_MXNET_SELF_CHECK_H_

#include <string>

namespace memonger {

// Empty when this libmxnet.so understands our objects and we understand its, else what failed.
std::string SelfCheck();

}  // namespace memonger

#endif  // MEMONGER_MXNET_SELF_CHECK_H_
