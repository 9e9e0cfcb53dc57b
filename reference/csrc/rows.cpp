// The versions of rows.inc, and which of them runs.

#include "rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include <nanobind/stl/string_view.h>

#include "ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
// GCC 12's own header leaves the lanes that a mask excludes undefined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace verispec {

namespace {

// Logits between a load and the prefetch that goes before it.
constexpr int64_t kAhead = 1024;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kExp2[4] = {1.0f, 0.6931472420692444f, 0.2402576357126236f, 0.0554962232708931f};
// Twice, the bits of 2^(i/8) less those that i itself adds when it is shifted to the exponent.
alignas(64) constexpr uint32_t kPowers[16] = {
    0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7,
    0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7,
};

// For eight bits, one per lane: the numbers of the lanes whose bit is set.
struct KeptLanes {
  alignas(8) uint8_t of[256][8] = {};
  constexpr KeptLanes() {
    for (int bits = 0; bits < 256; ++bits) {
      for (int lane = 0, count = 0; lane < 8; ++lane) {
        if (bits >> lane & 1) of[bits][count++] = static_cast<uint8_t>(lane);
      }
    }
  }
};
constexpr KeptLanes kKeptLanes;

// Tokens of positive infinity share the whole mass.
float count_infinite(const float* x, int64_t n) {
  float count = 0;
  for (int64_t i = 0; i < n; ++i) count += x[i] == kInfinity;
  return count;
}

#define VERISPEC_WIDTH 16
namespace baseline {
#include "rows.inc"
constexpr RowFunctions kFunctions{"baseline", maximum, maxima, scan, weights, widen,
                                  select, list, weight_above, keep};
}  // namespace baseline

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,tune=haswell")
#endif
#define VERISPEC_WIDTH 32
namespace avx2 {
#include "rows.inc"
constexpr RowFunctions kFunctions{"avx2", maximum, maxima, scan, weights, widen,
                                  select, list, weight_above, keep};
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("fma,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#define VERISPEC_WIDTH 64
namespace avx512 {
#include "rows.inc"
constexpr RowFunctions kFunctions{"avx512", maximum, maxima, scan, weights, widen,
                                  select, list, weight_above, keep};
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

// All versions that this processor runs, the widest first; the last entry is always the baseline.
nb::list versions() {
  nb::list names;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    names.append("avx512");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) names.append("avx2");
#endif
  names.append("baseline");
  return names;
}

const RowFunctions* find(std::string_view name) {
#if defined(__x86_64__)
  if (name == avx512::kFunctions.name) return &avx512::kFunctions;
  if (name == avx2::kFunctions.name) return &avx2::kFunctions;
#endif
  return &baseline::kFunctions;
}

const RowFunctions* chosen = &baseline::kFunctions;

}  // namespace

const RowFunctions& rows() { return *chosen; }

const Registration registration([](nb::module_& m) {
  chosen = find(nb::cast<std::string_view>(versions()[0]));
  m.def("instruction_sets", &versions);
  // For tests and benchmarks; not safe while a kernel runs.
  m.def("use_instruction_set", [](const std::string_view name) {
    const char* before = chosen->name;
    chosen = find(name);
    return before;
  });
});

}  // namespace verispec
