#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "clones.h"
#include "layers.h"
#include "ops.h"

namespace verispec {
namespace {

constexpr int64_t kPanel = Linear::kPanel;
constexpr int kTile = 12;       // rows whose sums fit in 32 wide registers together
constexpr int kNarrowTile = 6;  // rows whose sums for half of a panel fit in 16 registers of half the width
constexpr int64_t kChunk = 48;  // rows that stay in a fast cache while a panel is applied to them

bool has_wide_registers() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool is_wide = __builtin_cpu_supports("avx512f");
  return is_wide;
#else
  return false;
#endif
}

// Minimum multiply-adds per thread; they are cheap, so fewer do not pay for waking one.
constexpr int64_t kParallelProducts = 32 * kParallelWork;

// sums[row] = x[row] times the panel. The number of rows is known to the compiler, so that the sums of `columns`
// columns stay in registers. The panel `ahead` is fetched meanwhile: with several rows a processor does not run far
// enough ahead by itself.
template <int rows, int columns>
[[gnu::always_inline]] inline void multiply_tile(float* sums, const float* x, const float* panel, const float* ahead,
                                                 int64_t inputs) {
  for (int64_t first = 0; first < kPanel; first += columns) {
    float totals[rows][columns] = {};
    for (int64_t i = 0; i < inputs; ++i) {
      const float* weights = panel + i * kPanel + first;
      for (int c = 0; c < columns; c += 16) __builtin_prefetch(ahead + i * kPanel + first + c, 0, 2);
      for (int row = 0; row < rows; ++row) {
        const float value = x[row * inputs + i];
#pragma omp simd
        for (int c = 0; c < columns; ++c) totals[row][c] += value * weights[c];
      }
    }
    for (int row = 0; row < rows; ++row) std::memcpy(sums + row * kPanel + first, totals[row], sizeof totals[row]);
  }
}

// `multiply_tile` for any number of rows up to `most`.
template <int most, int columns>
[[gnu::always_inline]] inline void multiply_rows(float* sums, const float* x, const float* panel, const float* ahead,
                                                 int64_t inputs, int64_t rows) {
  if constexpr (most > 1) {
    if (rows < most) return multiply_rows<most - 1, columns>(sums, x, panel, ahead, inputs, rows);
  }
  multiply_tile<most, columns>(sums, x, panel, ahead, inputs);
}

VERISPEC_CLONES void multiply(float* sums, const float* x, const float* panel, const float* ahead, int64_t inputs,
                              int64_t rows, bool is_wide) {
  // Whole panels give few rows enough sums that do not wait for each other.
  if (is_wide || rows <= kNarrowTile / 2) return multiply_rows<kTile, kPanel>(sums, x, panel, ahead, inputs, rows);
  multiply_rows<kNarrowTile, kPanel / 2>(sums, x, panel, ahead, inputs, rows);
}

// out = silu(gate) * other, with silu(g) = g / (1 + e^-g) by powers that cannot overflow.
[[gnu::always_inline]] inline void gate(float* out, const float* gates, const float* others, int64_t columns) {
#pragma omp simd
  for (int64_t c = 0; c < columns; ++c) {
    const float g = gates[c], power = exponential(-std::abs(g));
    out[c] = g * (g < 0 ? power : 1.0f) / (1 + power) * others[c];
  }
}

// Write the sums of `rows` rows, with bias and residual, to rows of `out` that start `stride` floats apart. Full panels
// have a number of columns that the compiler knows.
template <bool gated>
[[gnu::always_inline]] inline void store_columns(float* out, const float* sums, const float* bias,
                                                 const float* residual, int64_t rows, int64_t columns,
                                                 int64_t stride) {
  for (int64_t row = 0; row < rows; ++row, sums += kPanel, out += stride) {
    float biased[kPanel];
    for (int64_t c = 0; c < kPanel; ++c) biased[c] = sums[c] + (bias ? bias[c] : 0);
    if (gated) {
      gate(out, biased, biased + kPanel / 2, columns);
    } else {
      const float* from = residual ? residual + row * stride : nullptr;
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) out[c] = biased[c] + (from ? from[c] : 0);
    }
  }
}

VERISPEC_CLONES void store(float* out, const float* sums, const float* bias, const float* residual, int64_t rows,
                           int64_t columns, int64_t stride, bool gated) {
  if (gated && columns == kPanel / 2) {
    store_columns<true>(out, sums, bias, residual, rows, kPanel / 2, stride);
  } else if (gated) {
    store_columns<true>(out, sums, bias, residual, rows, columns, stride);
  } else if (columns == kPanel) {
    store_columns<false>(out, sums, bias, residual, rows, kPanel, stride);
  } else {
    store_columns<false>(out, sums, bias, residual, rows, columns, stride);
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
  const bool is_wide = has_wide_registers();
  const int64_t most = is_wide ? kTile : kNarrowTile;
#pragma omp parallel for collapse(2) schedule(static) if (rows * inputs_ * panels * kPanel >= kParallelProducts)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t end = std::min(rows, (chunk + 1) * kChunk), columns = std::min(width, outputs_ - panel * width);
      float sums[kTile * kPanel];
      for (int64_t row = chunk * kChunk; row < end;) {
        // Use tiles of similar size: thirteen rows are seven and six, not twelve and one.
        const int64_t left = end - row, tiles = (left + most - 1) / most, tile = (left + tiles - 1) / tiles;
        const float* weights = panels_ + panel * kPanel * inputs_;
        const float* ahead = panel + 1 < panels ? weights + kPanel * inputs_ : weights;
        multiply(sums, x + row * inputs_, weights, ahead, inputs_, tile, is_wide);
        const int64_t place = row * outputs_ + panel * width;
        store(out + place, sums, bias_ ? bias_ + panel * kPanel : nullptr, residual ? residual + place : nullptr, tile,
              columns, outputs_, gated_);
        row += tile;
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
