#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "clones.h"
#include "layers.h"
#include "ops.h"

namespace verispec {
namespace {

constexpr int64_t kPanel = Linear::kPanel;
constexpr int64_t kTile = 6;    // rows whose sums fit in registers together
constexpr int64_t kChunk = 48;  // rows that stay in a fast cache while a panel is applied to them

// Minimum multiply-adds per thread; they are cheap, so fewer do not pay for waking one.
constexpr int64_t kParallelProducts = 32 * kParallelWork;

// sums[row] = x[row] times the panel. The number of rows is known to the compiler, so that all sums stay in registers.
// The panel `ahead` is fetched meanwhile: with several rows a processor does not run far enough ahead by itself.
template <int rows>
[[gnu::always_inline]] inline void multiply_tile(float* sums, const float* x, const float* panel, const float* ahead,
                                                 int64_t inputs) {
  float totals[rows][kPanel] = {};
  for (int64_t i = 0; i < inputs; ++i) {
    __builtin_prefetch(ahead + i * kPanel, 0, 2);
    __builtin_prefetch(ahead + i * kPanel + kPanel / 2, 0, 2);
    for (int row = 0; row < rows; ++row) {
      const float value = x[row * inputs + i];
#pragma omp simd
      for (int64_t c = 0; c < kPanel; ++c) totals[row][c] += value * panel[i * kPanel + c];
    }
  }
  std::memcpy(sums, totals, sizeof totals);
}

VERISPEC_CLONES void multiply(float* sums, const float* x, const float* panel, const float* ahead, int64_t inputs,
                              int64_t rows) {
  switch (rows) {
    case 1:
      return multiply_tile<1>(sums, x, panel, ahead, inputs);
    case 2:
      return multiply_tile<2>(sums, x, panel, ahead, inputs);
    case 3:
      return multiply_tile<3>(sums, x, panel, ahead, inputs);
    case 4:
      return multiply_tile<4>(sums, x, panel, ahead, inputs);
    case 5:
      return multiply_tile<5>(sums, x, panel, ahead, inputs);
    default:
      return multiply_tile<kTile>(sums, x, panel, ahead, inputs);
  }
}

// out = silu(gate) * other, with silu(g) = g / (1 + e^-g) by powers that cannot overflow.
VERISPEC_CLONES void gate(float* out, const float* gates, const float* others, int64_t columns) {
#pragma omp simd
  for (int64_t c = 0; c < columns; ++c) {
    const float g = gates[c], power = exponential(-std::abs(g));
    out[c] = g * (g < 0 ? power : 1.0f) / (1 + power) * others[c];
  }
}

}  // namespace

Linear::Linear(uintptr_t panels, std::optional<uintptr_t> bias, int64_t inputs, int64_t outputs, bool gated)
    : panels_(reinterpret_cast<const float*>(panels)),
      bias_(reinterpret_cast<const float*>(bias.value_or(0))),
      inputs_(inputs),
      outputs_(outputs),
      gated_(gated) {}

void Linear::operator()(float* out, const float* x, int64_t rows, const float* residual) const {
  const int64_t width = gated_ ? kPanel / 2 : kPanel, panels = (outputs_ + width - 1) / width;
  const int64_t chunks = (rows + kChunk - 1) / kChunk;
#pragma omp parallel for collapse(2) schedule(static) if (rows * inputs_ * panels * kPanel >= kParallelProducts)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t end = std::min(rows, (chunk + 1) * kChunk), columns = std::min(width, outputs_ - panel * width);
      float sums[kTile * kPanel];
      for (int64_t row = chunk * kChunk; row < end;) {
        // Use tiles of similar size: seven rows are four and three, not six and one.
        const int64_t left = end - row, tiles = (left + kTile - 1) / kTile, tile = (left + tiles - 1) / tiles;
        const float* weights = panels_ + panel * kPanel * inputs_;
        const float* ahead = panel + 1 < panels ? weights + kPanel * inputs_ : weights;
        multiply(sums, x + row * inputs_, weights, ahead, inputs_, tile);
        for (const float* sum = sums; sum < sums + tile * kPanel; sum += kPanel, ++row) {
          float* to = out + row * outputs_ + panel * width;
          float biased[kPanel];
          for (int64_t c = 0; c < kPanel; ++c) biased[c] = sum[c] + (bias_ ? bias_[panel * kPanel + c] : 0);
          if (gated_) {
            gate(to, biased, biased + width, columns);
          } else {
            const float* from = residual ? residual + row * outputs_ + panel * width : nullptr;
            for (int64_t c = 0; c < columns; ++c) to[c] = biased[c] + (from ? from[c] : 0);
          }
        }
      }
    }
  }
}

const Registration registration([](nb::module_& m) {
  m.attr("PANEL") = kPanel;
  nb::class_<Linear>(m, "Linear")
      .def(nb::init<uintptr_t, std::optional<uintptr_t>, int64_t, int64_t, bool>(), nb::arg(), nb::arg().none(),
           nb::arg(), nb::arg(), nb::arg())
      .def(
          "__call__",
          [](const Linear& linear, uintptr_t out, uintptr_t x, int64_t rows) {
            linear(reinterpret_cast<float*>(out), reinterpret_cast<const float*>(x), rows);
          },
          nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
