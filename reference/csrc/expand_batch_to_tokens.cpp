// expand_batch_to_tokens: repeat one value per request for each of its draft tokens. Clauses EXP-*.

#include <cmath>
#include <type_traits>

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

// Return true if `value` equals `wanted` in the value's own type. A number that an integer type cannot
// represent, such as 0.5, equals none of its values.
template <class T>
bool equals(T value, double wanted) {
  if constexpr (std::is_floating_point_v<T>) {
    return value == static_cast<T>(wanted);
  } else {
    // The casts are defined: `wanted` is whole and below 2^63 in magnitude.
    if (!(std::abs(wanted) < 0x1p63) || std::trunc(wanted) != wanted) return false;
    return static_cast<int64_t>(value) == static_cast<int64_t>(wanted);
  }
}

template <class T>
void expand(const Tensor& output, const Tensor& input, const Segments& tokens, double from, double to) {
#pragma omp parallel for schedule(static) if (output.size() >= kParallelWork)
  for (int64_t b = 0; b < tokens.size(); ++b) {
    T value = *input.at<T>(b);
    if (equals(value, from)) value = static_cast<T>(to);
    const int64_t end = tokens.end(b);
    for (int64_t i = tokens.begin(b); i < end; ++i) *output.at<T>(i) = value;
  }
}

void expand_batch_to_tokens(const Tensor& output, const Tensor& input, const Tensor& cu_num_tokens,
                            double replace_from, double replace_to, int64_t /*MAX_NUM_TOKENS*/) {
  const Segments tokens(cu_num_tokens, output.size());
  switch (output.type) {
    case Type::float32:
      return expand<float>(output, input, tokens, replace_from, replace_to);
    case Type::int32:
      return expand<int32_t>(output, input, tokens, replace_from, replace_to);
    case Type::int64:
      return expand<int64_t>(output, input, tokens, replace_from, replace_to);
    default:
      return expand<bool>(output, input, tokens, replace_from, replace_to);
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("expand_batch_to_tokens", &expand_batch_to_tokens, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
