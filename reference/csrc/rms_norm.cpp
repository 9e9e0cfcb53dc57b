#include <nanobind/nanobind.h>

#include <cmath>

#include "clones.h"
#include "layers.h"
#include "ops.h"

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

}  // namespace

RMSNorm::RMSNorm(uintptr_t weight, int64_t width, double epsilon)
    : weight_(reinterpret_cast<const float*>(weight)), width_(width), epsilon_(static_cast<float>(epsilon)) {}

void RMSNorm::operator()(float* out, const float* x, int64_t rows, int64_t stride) const {
#pragma omp parallel for schedule(static) if (rows * width_ >= kParallelWork)
  for (int64_t i = 0; i < rows; ++i) norm_row(out + i * stride, x + i * width_, weight_, width_, epsilon_);
}

const Registration registration([](nb::module_& m) {
  nb::class_<RMSNorm>(m, "RMSNorm")
      .def(nb::init<uintptr_t, int64_t, double>())
      .def("__call__", [](const RMSNorm& norm, uintptr_t out, uintptr_t x, int64_t rows, int64_t stride) {
        norm(reinterpret_cast<float*>(out), reinterpret_cast<const float*>(x), rows, stride);
      });
});

}  // namespace verispec
