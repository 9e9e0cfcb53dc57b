// The tokens of a row that top-k and top-p keep (clauses TKP-1 to TKP-5): a threshold, never a mask.

#pragma once

#include <functional>

#include "fused.h"

namespace verispec {

// Kept tokens in the order of their ids, with their cumulative mass.
class Survivors {
 public:
  // The row's scan must have sub-block maxima and, without top-k, masses. k of 0 and p of 1 keep all.
  void find(const Row& row, int64_t k, double p) {
    const bool has_k = k > 0 && k < row.view().size(), has_p = !(p >= 1.0);
    float bound = kNone;
    if (has_k) bound = bound_of_k(row, k);
    else if (has_p) bound = bound_of_p(row, p);
    gather(row, bound);
    last_ = {std::max(bound, std::numeric_limits<float>::lowest()), std::numeric_limits<int32_t>::max(), 0};
    if (has_k && k < static_cast<int64_t>(all_.size())) {
      order_ = all_;
      std::nth_element(order_.begin(), order_.begin() + (k - 1), order_.end(), before);
      last_ = order_[k - 1];
      all_.erase(std::remove_if(all_.begin(), all_.end(), [&](const Entry& e) { return before(last_, e); }), all_.end());
    }
    weigh(row);
    if (has_p && !all_.empty()) {
      last_ = last_of_p(row.top(), has_k ? sum() : row.total(), p);
      all_.erase(std::remove_if(all_.begin(), all_.end(), [&](const Entry& e) { return before(last_, e); }), all_.end());
    }
    sums_.resize(all_.size());
    double total = 0;
    for (size_t i = 0; i < all_.size(); ++i) sums_[i] = total += all_[i].weight;
  }

  double total() const { return sums_.empty() ? 0.0 : sums_.back(); }
  bool keeps(float logit, int64_t id) const { return logit > kNone && !before(last_, {logit, static_cast<int32_t>(id), 0}); }
  size_t size() const { return all_.size(); }
  int64_t id(size_t i) const { return all_[i].id; }

  // Inverse CDF at u, without the token `excluded` (-1: none). `rest` is the mass that was drawn from; -1 where none.
  int64_t draw(double u, int64_t excluded, double& rest) const {
    size_t hole = all_.size();
    if (excluded >= 0) {
      const auto at = std::lower_bound(all_.begin(), all_.end(), excluded,
                                       [](const Entry& e, int64_t id) { return e.id < id; });
      if (at != all_.end() && at->id == excluded) hole = at - all_.begin();
    }
    const double below = hole == 0 ? 0.0 : hole < all_.size() ? sums_[hole - 1] : total();
    const double above = hole < all_.size() ? total() - sums_[hole] : 0.0;
    rest = below + above;
    if (!(rest > 0)) return -1;
    const double target = u * rest;
    if (target < below || !(above > 0)) return all_[std::min(first_above(0, target), hole - 1)].id;
    return all_[std::min(first_above(hole + 1, target - below + sums_[hole]), all_.size() - 1)].id;
  }

 private:
  struct Entry {
    float logit;
    int32_t id;
    float weight;
  };

  // The order of TKP-1: larger logits first, of equal ones the lower id.
  static bool before(const Entry& a, const Entry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

  size_t first_above(size_t begin, double target) const {
    return std::upper_bound(sums_.begin() + begin, sums_.end(), target) - sums_.begin();
  }

  double sum() const {
    double total = 0;
    for (const Entry& e : all_) total += e.weight;
    return total;
  }

  // At least k logits are as large as the k-th largest maximum of a sub-block.
  float bound_of_k(const Row& row, int64_t k) {
    const int64_t subs = (row.view().size() + kSubBlock - 1) / kSubBlock;
    if (k > subs) return kNone;
    maxima_.assign(row.stats().sub.begin(), row.stats().sub.begin() + subs);
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(), std::greater<float>());
    return maxima_[k - 1];
  }

  // All logits below the bound weigh less than 1 - p together, so none of them is kept. Half of that leaves room for
  // rounding.
  static float bound_of_p(const Row& row, double p) {
    if (!(p > 0)) return row.top();
    const double share = 0.5 * (1.0 - p) * row.total() / static_cast<double>(row.view().size());
    return static_cast<float>(row.top() + std::log2(share) / row.scale());
  }

  void gather(const Row& row, float bound) {
    bound = std::max(bound, std::numeric_limits<float>::lowest());
    all_.clear();
    alignas(64) float buffer[kBlock];
    int32_t ids[kSubBlock + 1];
    const RowView& view = row.view();
    for (int64_t b = 0; b < view.blocks(); ++b) {
      if (row.stats().top[b] < bound) continue;
      const float* x = view.block(b, buffer);
      const int64_t n = view.block_size(b);
      for (int64_t begin = 0; begin < n; begin += kSubBlock) {
        if (row.stats().sub[b * kSubBlocks + begin / kSubBlock] < bound) continue;
        const int64_t count = rows().select(x + begin, std::min(kSubBlock, n - begin), bound, begin, ids);
        const size_t size = all_.size();
        all_.resize(size + count);
        for (int64_t i = 0; i < count; ++i) all_[size + i] = {x[ids[i]], static_cast<int32_t>(b * kBlock) + ids[i], 0};
      }
    }
  }

  void weigh(const Row& row) {
    alignas(64) float x[kBlock], w[kBlock];
    for (size_t begin = 0; begin < all_.size(); begin += kBlock) {
      const size_t n = std::min<size_t>(kBlock, all_.size() - begin);
      for (size_t i = 0; i < n; ++i) x[i] = all_[begin + i].logit;
      rows().weights(x, n, row.top(), row.scale(), w);
      for (size_t i = 0; i < n; ++i) all_[begin + i].weight = w[i];
    }
  }

  // The last token of the order before which less than p of the mass lies. Only the tokens of one bin are sorted: that
  // in which the mass of larger logits reaches p.
  Entry last_of_p(float top, double total, double p) {
    double mass[kBins] = {};
    float lowest = top;
    for (const Entry& e : all_) lowest = std::min(lowest, e.logit);
    const float width = top - lowest;
    const float per_bin = width > 0 && width < std::numeric_limits<float>::infinity() ? (kBins - 1) / width : 0.0f;
    const auto bin = [&](const Entry& e) { return per_bin > 0 ? static_cast<int>((top - e.logit) * per_bin) : 0; };
    for (const Entry& e : all_) mass[bin(e)] += e.weight;
    double reached = 0;
    int crossing = 0;
    while (crossing < kBins - 1 && reached + mass[crossing] < p * total) reached += mass[crossing++];
    order_.clear();
    for (const Entry& e : all_) {
      if (bin(e) == crossing) order_.push_back(e);
    }
    std::sort(order_.begin(), order_.end(), before);
    // Written so that a p of NaN keeps the first token alone.
    size_t kept = 0;
    while (kept < order_.size() && ((kept == 0 && crossing == 0) || reached < p * total)) reached += order_[kept++].weight;
    return kept > 0 ? order_[kept - 1] : last_;
  }

  static constexpr int kBins = 1024;
  std::vector<Entry> all_, order_;
  std::vector<float> maxima_;
  std::vector<double> sums_;
  Entry last_{kNone, 0, 0};
};

// A target row of a sampled request: all of its tokens, or the survivors of its limits.
class TargetRow {
 public:
  Row row;

  // `k` of 0 and `p` of 1 are no limits. The row's scan has masses unless there is top-k, and sub-blocks where limited.
  void limit(int64_t k, double p) {
    is_limited_ = has_limits(k, p);
    if (is_limited_) survivors_.find(row, k, p);
  }

  static bool has_limits(int64_t k, double p) { return k > 0 || !(p >= 1.0); }

  double total() const { return is_limited_ ? survivors_.total() : row.total(); }

  double weight(int64_t token) const {
    const float logit = row.view().get(token);
    return is_limited_ && !survivors_.keeps(logit, token) ? 0.0 : row.weight(logit);
  }

  int64_t draw(double u, int64_t excluded, double& rest) const {
    return is_limited_ ? survivors_.draw(u, excluded, rest) : row.draw(u, excluded, rest);
  }

  // Calls visit(token, weight) for every kept token, in the order of ids, until it returns true. Weights are exact to
  // double: differences of two distributions that are nearly equal are what is left of them.
  template <class Visit>
  void each(Visit visit) const {
    const int64_t count = is_limited_ ? survivors_.size() : row.view().size();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = is_limited_ ? survivors_.id(i) : i;
      if (visit(token, row.weight(row.view().get(token)))) return;
    }
  }

 private:
  Survivors survivors_;
  bool is_limited_ = false;
};

// State of a sampled request that determines its random samples.
struct Sampling {
  Integers pos, seed;
  Reals temperature;
  std::optional<Integers> top_k;
  std::optional<Reals> top_p;

  Sampling(const Tensor& pos, const Tensor& temperature, const Tensor& seed, const std::optional<Tensor>& top_k,
           const std::optional<Tensor>& top_p)
      : pos(pos), seed(seed), temperature(temperature) {
    if (top_k) this->top_k.emplace(*top_k);
    if (top_p) this->top_p.emplace(*top_p);
  }

  bool exists(int64_t state) const { return state >= 0 && state < seed.size(); }
  int64_t k(int64_t state, int64_t vocabulary) const {
    const int64_t k = top_k ? top_k->get(state) : 0;
    return k > 0 && k < vocabulary ? k : 0;
  }
  double p(int64_t state) const { return top_p ? top_p->get(state) : 1.0; }
  RowNumbers numbers(int64_t state, int64_t row, int64_t step) const { return {seed.get(state), pos.get(row), step}; }
};

}  // namespace verispec
