// Registration of kernels. Each file registers its own functions, so that no list names them; the file's name is the
// op's. Parameters are the contract's, in its order, without tuning parameters; kernels run without the GIL.

#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace verispec {

namespace nb = nanobind;

using Binder = void (*)(nb::module_&);

// The functions that add kernels to the module. A static local exists before any file's `Registration` uses it.
inline std::vector<Binder>& binders() {
  static std::vector<Binder> all;
  return all;
}

// A file's contribution to the module: a constant at namespace scope, initialised when the module is loaded.
struct Registration {
  explicit Registration(Binder binder) { binders().push_back(binder); }
};

}  // namespace verispec
