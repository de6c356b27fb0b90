// Changes with every change of a C call of this library, or of what it computes:
// memonger/util/native_libraries.py refuses another one.
extern "C" __attribute__((visibility("default"))) int memonger_core_interface_version() {
  return 9;
}
