#include "./register.h"

namespace memonger {
namespace ops {

void RegisterAll() {}

}  // namespace ops
}  // namespace memonger
