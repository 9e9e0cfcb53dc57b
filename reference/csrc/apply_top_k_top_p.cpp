// apply_top_k_top_p: keep the first k tokens of a row, then the first with probability p. Clauses TKP-*.
//
// Sort only the part of the row that the limits need: select the first k, then sort growing prefixes of
// them, or of the row, until they reach p. Probabilities are sums of doubles.

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

class Row {
 public:
  explicit Row(int64_t size) : logits_(size), ids_(size) {}

  void read(const Reals& logits, int64_t row) {
    for (size_t x = 0; x < logits_.size(); ++x) {
      const double logit = logits.get(row, static_cast<int64_t>(x));
      logits_[x] = std::isnan(logit) ? kMinusInfinity : static_cast<float>(logit);
    }
    std::iota(ids_.begin(), ids_.end(), 0);
    kept_ = static_cast<int64_t>(ids_.size());
  }

  void keep_k(int64_t k) {
    select(0, k, kept_);
    kept_ = k;
  }

  void keep_p(double p) {
    float top = kMinusInfinity;
    for (int64_t i = 0; i < kept_; ++i) top = std::max(top, logits_[ids_[i]]);
    double total = 0;
    for (int64_t i = 0; i < kept_; ++i) total += weight(ids_[i], top);
    double before = 0;
    int64_t ordered = 0;
    for (int64_t i = 0; i < kept_; ++i) {
      if (i == ordered) {
        ordered = std::min(std::max<int64_t>(1024, 4 * ordered), kept_);
        select(i, ordered, kept_);
        std::sort(ids_.begin() + i, ids_.begin() + ordered, Order{*this});
      }
      // The comparison is false for NaN, so that a p of NaN keeps the first token alone.
      if (i > 0 && !(before < p * total)) {
        kept_ = i;
        return;
      }
      before += weight(ids_[i], top);
    }
  }

  // Flags of the kept tokens; minus infinity and NaN are never kept.
  void write(std::vector<char>& is_kept) const {
    std::fill(is_kept.begin(), is_kept.end(), 0);
    for (int64_t i = 0; i < kept_; ++i) is_kept[ids_[i]] = logits_[ids_[i]] > kMinusInfinity;
  }

 private:
  struct Order {
    const Row& row;
    bool operator()(int32_t a, int32_t b) const {
      return row.logits_[a] != row.logits_[b] ? row.logits_[a] > row.logits_[b] : a < b;
    }
  };

  // Move the ids of [begin, end) that come first in the order into [begin, middle).
  void select(int64_t begin, int64_t middle, int64_t end) {
    if (middle < end) std::nth_element(ids_.begin() + begin, ids_.begin() + middle, ids_.begin() + end, Order{*this});
  }

  double weight(int32_t id, float top) const {
    return logits_[id] == top ? 1.0 : std::exp(static_cast<double>(logits_[id]) - top);
  }

  std::vector<float> logits_;
  std::vector<int32_t> ids_;
  int64_t kept_ = 0;
};

template <class Bits>
void mask(const Tensor& output, const Tensor& logits, int64_t row, const std::vector<char>& is_kept, Bits minus_infinity) {
  for (size_t x = 0; x < is_kept.size(); ++x) {
    const auto column = static_cast<int64_t>(x);
    *output.at<Bits>(row, column) = is_kept[x] ? *logits.at<Bits>(row, column) : minus_infinity;
  }
}

void apply_top_k_top_p(const Tensor& output, const Tensor& logits, const std::optional<Tensor>& k,
                       const std::optional<Tensor>& p) {
  const int64_t vocabulary = logits.shape[1];

#pragma omp parallel if (logits.size() * vocabulary >= kParallelWork)
  {
    Row row(vocabulary);
    std::vector<char> is_kept(vocabulary);
#pragma omp for schedule(dynamic)
    for (int64_t b = 0; b < logits.size(); ++b) {
      row.read(Reals(logits), b);
      const int64_t first = k ? Integers(*k).get(b) : 0;
      if (first > 0 && first < vocabulary) row.keep_k(first);
      const double mass = p ? Reals(*p).get(b) : 1.0;
      if (!(mass >= 1.0)) row.keep_p(mass);
      row.write(is_kept);
      if (logits.type == Type::float32) {
        mask<uint32_t>(output, logits, b, is_kept, 0xff800000u);
      } else {
        mask<uint16_t>(output, logits, b, is_kept, logits.type == Type::bfloat16 ? 0xff80u : 0xfc00u);
      }
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("apply_top_k_top_p", &apply_top_k_top_p, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
