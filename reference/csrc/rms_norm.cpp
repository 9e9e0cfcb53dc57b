// rms_norm: each row divided by its root mean square, times a weight (Zhang and Sennrich 2019). No op with a contract:
// models/compact.py calls it for dense float32 tensors, by their addresses.

#include <cmath>

#include "clones.h"
#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

VERISPEC_CLONES void norm_row(float* out, const float* row, const float* weight, int64_t width, float epsilon) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t d = 0; d < width; ++d) squares += row[d] * row[d];
  const float scale = 1 / std::sqrt(squares / static_cast<float>(width) + epsilon);
#pragma omp simd
  for (int64_t d = 0; d < width; ++d) out[d] = row[d] * scale * weight[d];
}

void rms_norm(uintptr_t out, uintptr_t rows, uintptr_t weight, int64_t num_rows, int64_t width, double epsilon) {
#pragma omp parallel for schedule(static) if (num_rows * width >= kParallelWork)
  for (int64_t i = 0; i < num_rows; ++i) {
    norm_row(reinterpret_cast<float*>(out) + i * width, reinterpret_cast<const float*>(rows) + i * width,
             reinterpret_cast<const float*>(weight), width, static_cast<float>(epsilon));
  }
}

}  // namespace

void bind_rms_norm(nb::module_& m) { m.def("rms_norm", &rms_norm); }

}  // namespace verispec
