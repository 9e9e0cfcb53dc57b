// Tensor views of the kernels.
//
// The Python side (contracts/_check.py) validates every call: types, ranks, shapes, cumulative counts and
// their range, and that no output shares memory. Kernels rely on it. It does not read every value: a kernel
// compares each token id, position, length and block number with its bounds before using it as an index.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace verispec {


enum class Type : uint8_t { boolean, int32, int64, float32, float64, bfloat16, float16 };

// A view of rank 1 to 3: address of the first element, sizes, and strides in elements, which may be
// zero or negative. A rank of 1 is a single column. All offsets have 64 bits.
struct Tensor {
  char* data = nullptr;
  Type type = Type::int32;
  int64_t shape[3] = {0, 1, 1};
  int64_t stride[3] = {0, 0, 0};

  int64_t size() const { return shape[0]; }

  template <class T>
  T* at(int64_t i, int64_t j = 0, int64_t k = 0) const {
    return reinterpret_cast<T*>(data) + (i * stride[0] + j * stride[1] + k * stride[2]);
  }
};

inline float widen_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

inline float widen_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in float32
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t wide = sign | (exponent == 0x1fu ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Integers of either width, one at a time. The branch on the width never changes during a call.
class Integers {
 public:
  explicit Integers(const Tensor& tensor) : t_(tensor) {}

  int64_t size() const { return t_.size(); }

  int64_t get(int64_t i, int64_t j = 0) const {
    return t_.type == Type::int64 ? *t_.at<int64_t>(i, j) : *t_.at<int32_t>(i, j);
  }

  void set(int64_t i, int64_t value) const { set(i, 0, value); }

  void set(int64_t i, int64_t j, int64_t value) const {
    if (t_.type == Type::int64) {
      *t_.at<int64_t>(i, j) = value;
    } else {
      *t_.at<int32_t>(i, j) = static_cast<int32_t>(value);
    }
  }

 private:
  Tensor t_;
};

// Floating-point numbers of any width, widened exactly.
class Reals {
 public:
  explicit Reals(const Tensor& tensor) : t_(tensor) {}

  double get(int64_t i, int64_t j = 0) const {
    switch (t_.type) {
      case Type::float64:
        return *t_.at<double>(i, j);
      case Type::bfloat16:
        return widen_bfloat16(*t_.at<uint16_t>(i, j));
      case Type::float16:
        return widen_float16(*t_.at<uint16_t>(i, j));
      default:
        return *t_.at<float>(i, j);
    }
  }

 private:
  Tensor t_;
};

// Booleans. NumPy and torch store them as bytes of 0 and 1.
class Flags {
 public:
  explicit Flags(const Tensor& tensor) : t_(tensor) {}

  bool get(int64_t i) const { return *t_.at<uint8_t>(i) != 0; }
  void set(int64_t i, bool value) const { *t_.at<uint8_t>(i) = value; }

 private:
  Tensor t_;
};

// The tokens of each request, from an inclusive cumulative sum without a leading zero. Clamp them to [0, limit],
// so that counts that another thread changes after the check cannot lead outside.
class Segments {
 public:
  Segments(const Tensor& cumulative, int64_t limit) : sums_(cumulative), limit_(limit) {}

  int64_t size() const { return sums_.size(); }
  int64_t begin(int64_t b) const { return b == 0 ? 0 : clamp(sums_.get(b - 1)); }
  int64_t end(int64_t b) const { return std::max(begin(b), clamp(sums_.get(b))); }

 private:
  int64_t clamp(int64_t sum) const { return std::clamp<int64_t>(sum, 0, limit_); }

  Integers sums_;
  int64_t limit_;
};

// Minimum elements of work for which waking other threads pays.
constexpr int64_t kParallelWork = 1 << 16;

// Name of the capsules that hand a `Tensor` to a kernel.
inline constexpr char kTensorCapsule[] = "verispec.tensor";

}  // namespace verispec

namespace nanobind::detail {

// From a `TensorView` of contracts/_view.py, (pointer, dtype, shape, strides, ...), or from a capsule of checked_op.cpp.
template <>
struct type_caster<verispec::Tensor> {
  NB_TYPE_CASTER(verispec::Tensor, const_name("View"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (PyCapsule_IsValid(source.ptr(), verispec::kTensorCapsule)) {
      value = *static_cast<verispec::Tensor*>(PyCapsule_GetPointer(source.ptr(), verispec::kTensorCapsule));
      return true;
    }
    if (!PyTuple_Check(source.ptr()) || PyTuple_GET_SIZE(source.ptr()) < 4) return false;
    try {
      const auto view = borrow<nanobind::tuple>(source);
      const auto shape = borrow<nanobind::tuple>(view[2]), strides = borrow<nanobind::tuple>(view[3]);
      value.data = reinterpret_cast<char*>(cast<uintptr_t>(view[0]));
      if (!parse(cast<const char*>(view[1]), value.type) || shape.size() > 3 || shape.size() != strides.size()) {
        return false;
      }
      for (size_t i = 0; i < shape.size(); ++i) {
        value.shape[i] = cast<int64_t>(shape[i]);
        value.stride[i] = cast<int64_t>(strides[i]);
      }
      return true;
    } catch (...) {
      PyErr_Clear();
      return false;
    }
  }

 private:
  static bool parse(std::string_view name, verispec::Type& type) {
    using verispec::Type;
    constexpr std::pair<std::string_view, Type> known[] = {
        {"bool", Type::boolean},    {"int32", Type::int32},       {"int64", Type::int64},    {"float32", Type::float32},
        {"float64", Type::float64}, {"bfloat16", Type::bfloat16}, {"float16", Type::float16}};
    for (const auto& [text, value] : known) {
      if (text == name) {
        type = value;
        return true;
      }
    }
    return false;
  }
};

}  // namespace nanobind::detail
