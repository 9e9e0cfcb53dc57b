// The extension module verispec.reference._csrc. It is private: verispec.reference.cpu validates every call
// and passes addresses.

#include "ops.h"

NB_MODULE(_csrc, m) {
  // The callables live as long as the process; do not report them as leaks at exit.
  nanobind::set_leak_warnings(false);
  m.doc() = "CPU kernels of the reference engine; call them through verispec.reference.cpu.";
  for (verispec::Binder bind : verispec::binders()) bind(m);
}
