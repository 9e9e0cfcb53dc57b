// philox: the words of Philox4x32-10. Clauses PHX-*.

#include "philox.h"

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void philox(const Tensor& words, const Tensor& counter, const Tensor& key) {
  const Integers out(words), counters(counter), keys(key);
  for (int64_t n = 0; n < counters.size(); ++n) {
    Words c;
    for (int i = 0; i < 4; ++i) c[i] = static_cast<uint32_t>(counters.get(n, i));
    c = philox4x32(c, static_cast<uint32_t>(keys.get(n, 0)), static_cast<uint32_t>(keys.get(n, 1)));
    for (int i = 0; i < 4; ++i) out.set(n, i, c[i]);
  }
}

}  // namespace

const Registration registration([](nb::module_& m) { m.def("philox", &philox, nb::call_guard<nb::gil_scoped_release>()); });

}  // namespace verispec
