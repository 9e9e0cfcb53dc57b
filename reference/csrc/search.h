// Lists of logits with their weights, and the search for the logit at which their cumulative mass reaches a number.

#pragma once

#include "fused.h"

namespace verispec {

inline float after(float x) { return std::nextafter(x, kInfinite); }
inline float preceding(float x) { return std::nextafter(x, kNone); }

// The index of the n-th (from 1) element that equals `logit`; there must be as many.
inline int64_t nth_equal(const float* x, float logit, int64_t n) {
  int64_t i = 0;
  while (x[i] != logit || --n > 0) ++i;
  return i;
}

// The last kept token in the order of TKP-1: larger logits first, of equal ones the lower id.
struct Last {
  float logit;
  int32_t id;

  bool keeps(float other, int64_t other_id) const { return (other > logit) | ((other == logit) & (other_id <= id)); }
};

// The last kept logit of a list, and how many with it are kept.
struct Limit {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  float logit;
  int64_t equals;

  bool are_all() const { return equals == kAll; }
};

// Logits with their weights, in the order of their ids.
struct Candidates {
  std::vector<float> logits, weights;
  int64_t size = 0;

  void reserve(int64_t room) {
    if (static_cast<int64_t>(logits.size()) >= room) return;
    logits.resize(2 * room);
    weights.resize(2 * room);
  }

  void weigh(Base base, float scale) { rows().weights(logits.data(), size, base, scale, weights.data()); }

  double mass_from(float bound) const { return rows().weight_above(logits.data(), weights.data(), size, bound); }

  // Takes over what `from`, which may be this list, has from `low` to below `high`.
  void keep(const Candidates& from, float low, float high) {
    reserve(from.size + kLanes);
    size = rows().keep(from.logits.data(), from.weights.data(), from.size, low, high, logits.data(), weights.data());
  }
};

// Finds the token of a list at which the cumulative mass, in the order of TKP-1, reaches a number.
class Search {
 public:
  // Halves what lies from `low` to below `high` until few tokens are left; `before` is the mass from `high` on. `hint`
  // is tried first.
  void narrow(const Candidates& from, double before, double want, float low, float high, float hint = kInfinite) {
    list_ = &from;
    low_ = low;
    high_ = high;
    before_ = before;
    while (list_->size > kFew) {
      const float middle = hint > low_ && hint < high_ ? hint : low_ / 2 + high_ / 2;
      if (!(middle > low_ && middle < high_)) return;
      hint = kInfinite;
      const double mass = list_->mass_from(middle);
      if (before_ + mass < want) {
        before_ += mass;
        high_ = middle;
      } else {
        low_ = middle;
      }
      own_.keep(*list_, low_, high_);
      list_ = &own_;
    }
  }

  // After `narrow`: the last token before which less than `want` lies, and at least the first one. If rounding has
  // left no token, all those from the upper bound on.
  Limit last(double want) {
    sorted_.clear();
    for (int64_t i = 0; i < list_->size; ++i) {
      if (list_->logits[i] >= low_) sorted_.push_back({list_->logits[i], list_->weights[i]});
    }
    if (sorted_.empty()) return {preceding(high_), Limit::kAll};
    // Adjacent bounds leave equal logits.
    if (after(low_) < high_) std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
    size_t kept = 0;
    while (kept < sorted_.size() && (kept == 0 || before_ < want)) before_ += sorted_[kept++].second;
    const float logit = sorted_[kept - 1].first;
    if (kept == sorted_.size() || sorted_[kept].first != logit) return {logit, Limit::kAll};
    int64_t equals = 0;
    while (kept > 0 && sorted_[--kept].first == logit) ++equals;
    return {logit, equals};
  }

 private:
  static constexpr int64_t kFew = 48;
  const Candidates* list_ = nullptr;
  Candidates own_;
  std::vector<std::pair<float, float>> sorted_;  // logits and weights
  float low_ = 0, high_ = 0;
  double before_ = 0;
};

}  // namespace verispec
