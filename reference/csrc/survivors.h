// The tokens of a row that top-k and top-p keep (clauses TKP-1 to TKP-5): a threshold, never a mask.

#pragma once

#include <functional>

#include "fused.h"

namespace verispec {

// Kept tokens in the order of their ids, with their mass.
class Survivors {
 public:
  // The row's scan must have sub-block maxima and, without top-k, masses. k of 0 and p of 1 keep all.
  void find(const Row& row, int64_t k, double p) {
    const bool has_k = k > 0 && k < row.view().size(), has_p = !(p >= 1.0);
    float bound = kNone;
    if (has_k) bound = bound_of_k(row, k);
    else if (has_p) bound = bound_of_p(row, p);
    const float guess = has_k || !has_p ? kNone : guess_of_p(row, p, bound);
    bool weighed = guess > bound;
    if (weighed) {
      // What the guess leaves out must weigh less than 1 - p, with room for rounding.
      gather(row, guess);
      weigh(row);
      weighed = sum() >= (p + 0.05 * (1.0 - p)) * row.total();
    }
    if (!weighed) gather(row, bound);
    last_ = {std::max(bound, std::numeric_limits<float>::lowest()), std::numeric_limits<int32_t>::max(), 0};
    if (has_k && k < static_cast<int64_t>(ids_.size())) {
      order_.resize(ids_.size());
      for (size_t i = 0; i < ids_.size(); ++i) order_[i] = {logits_[i], ids_[i], 0};
      std::nth_element(order_.begin(), order_.begin() + (k - 1), order_.end(), before);
      keep_to(order_[k - 1]);
    }
    if (!weighed) weigh(row);
    if (has_p && !ids_.empty()) keep_to(last_of_p(row.top(), has_k ? sum() : row.total(), p));
    total_ = sum();
    sums_.clear();
  }

  double total() const { return total_; }
  bool keeps(float logit, int64_t id) const { return logit > kNone && !before(last_, {logit, static_cast<int32_t>(id), 0}); }
  size_t size() const { return ids_.size(); }
  int64_t id(size_t i) const { return ids_[i]; }

  // Inverse CDF at u, without the token `excluded` (-1: none). `rest` is the mass that was drawn from; -1 where none.
  int64_t draw(double u, int64_t excluded, double& rest) const {
    add_up();
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), excluded);
    const size_t hole = at != ids_.end() && *at == excluded ? at - ids_.begin() : ids_.size();
    const double all = sums_.empty() ? 0.0 : sums_.back();
    const double below = hole == 0 ? 0.0 : hole < ids_.size() ? sums_[hole - 1] : all;
    const double above = hole < ids_.size() ? all - sums_[hole] : 0.0;
    rest = below + above;
    if (!(rest > 0)) return -1;
    const double target = u * rest;
    if (target < below || !(above > 0)) return ids_[std::min(first_above(0, target), hole - 1)];
    return ids_[std::min(first_above(hole + 1, target - below + sums_[hole]), ids_.size() - 1)];
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

  // In four chains, so that one addition does not wait for the one before.
  double sum() const {
    double totals[4] = {};
    size_t i = 0;
    for (; i + 4 <= weights_.size(); i += 4) {
      for (size_t chain = 0; chain < 4; ++chain) totals[chain] += weights_[i + chain];
    }
    for (; i < weights_.size(); ++i) totals[0] += weights_[i];
    return (totals[0] + totals[1]) + (totals[2] + totals[3]);
  }

  // Cumulative masses; few rows need them.
  void add_up() const {
    if (!sums_.empty()) return;
    sums_.resize(weights_.size());
    double total = 0;
    for (size_t i = 0; i < weights_.size(); ++i) sums_[i] = total += weights_[i];
  }

  // Drops the tokens after `last`. Without branches: half of them would be predicted wrongly.
  void keep_to(const Entry& last) {
    last_ = last;
    size_t kept = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const float logit = logits_[i], weight = weights_[i];
      const int32_t id = ids_[i];
      logits_[kept] = logit;
      weights_[kept] = weight;
      ids_[kept] = id;
      kept += (logit > last.logit) | ((logit == last.logit) & (id <= last.id));
    }
    resize(kept);
  }

  void resize(size_t size) {
    logits_.resize(size);
    weights_.resize(size);
    ids_.resize(size);
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

  // A logit below which most of 1 - p lies, as every sixteenth sub-block tells; kNone for rows that are soon searched.
  // Light tokens are many, so that a few tell their mass.
  static float guess_of_p(const Row& row, double p, float bound) {
    const RowView& view = row.view();
    const float width = row.top() - bound;
    if (view.size() < 16 * kBlock || !(p > 0 && p < 0.9999) || !(width > 0 && std::isfinite(width))) return kNone;
    alignas(64) float buffer[kBlock], w[kSubBlock];
    double mass[kBins] = {}, below = 0;
    const float per_bin = (kBins - 1) / width;
    int64_t seen = 0;
    for (int64_t b = 0; b + 1 < view.blocks(); b += 2, seen += kSubBlock) {
      const float* x = view.block(b, buffer) + b / 2 % kSubBlocks * kSubBlock;
      rows().weights(x, kSubBlock, row.top(), row.scale(), w);
      for (int64_t i = 0; i < kSubBlock; ++i) {
        if (x[i] >= bound) mass[static_cast<int>((row.top() - x[i]) * per_bin)] += w[i];
        else below += w[i];  // of NaN 0
      }
    }
    const double most = 0.8 * (1.0 - p) * row.total() * static_cast<double>(seen) / static_cast<double>(view.size());
    int bin = kBins - 1;
    while (bin > 0 && below + mass[bin] < most) below += mass[bin--];
    return row.top() - static_cast<float>(bin + 1) / per_bin;
  }

  void gather(const Row& row, float bound) {
    bound = std::max(bound, std::numeric_limits<float>::lowest());
    alignas(64) float buffer[kBlock];
    const RowView& view = row.view();
    size_t size = 0;
    for (int64_t b = 0; b < view.blocks(); ++b) {
      if (row.stats().top[b] < bound) continue;
      const float* x = view.block(b, buffer);
      const int64_t n = view.block_size(b);
      // Room for a whole block at once; the size is that of the last one.
      if (ids_.size() < size + kBlock + kLanes) resize(2 * size + kBlock + kLanes);
      for (int64_t begin = 0; begin < n; begin += kSubBlock) {
        if (row.stats().sub[b * kSubBlocks + begin / kSubBlock] < bound) continue;
        int32_t* ids = &ids_[size];
        const int64_t first = b * kBlock, subs = std::min(kSubBlock, n - begin);
        const int64_t count = rows().select(x + begin, subs, bound, static_cast<int32_t>(first + begin), ids);
        for (int64_t i = 0; i < count; ++i) logits_[size + i] = x[ids[i] - first];
        size += count;
      }
    }
    resize(size);
  }

  void weigh(const Row& row) {
    if (!ids_.empty()) rows().weights(logits_.data(), ids_.size(), row.top(), row.scale(), weights_.data());
  }

  // The last token of the order before which less than p of the mass lies. Only the tokens of one bin are sorted: that
  // in which the mass of larger logits reaches p.
  Entry last_of_p(float top, double total, double p) {
    double mass[kBins] = {};
    float lowest = top;
    for (const float logit : logits_) lowest = std::min(lowest, logit);
    const float width = top - lowest;
    const float per_bin = width > 0 && width < std::numeric_limits<float>::infinity() ? (kBins - 1) / width : 0.0f;
    const auto bin = [&](float logit) { return per_bin > 0 ? static_cast<int>((top - logit) * per_bin) : 0; };
    for (size_t i = 0; i < ids_.size(); ++i) mass[bin(logits_[i])] += weights_[i];
    double reached = 0;
    int crossing = 0;
    while (crossing < kBins - 1 && reached + mass[crossing] < p * total) reached += mass[crossing++];
    order_.clear();
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (bin(logits_[i]) == crossing) order_.push_back({logits_[i], ids_[i], weights_[i]});
    }
    std::sort(order_.begin(), order_.end(), before);
    // Written so that a p of NaN keeps the first token alone.
    size_t kept = 0;
    while (kept < order_.size() && ((kept == 0 && crossing == 0) || reached < p * total)) reached += order_[kept++].weight;
    return kept > 0 ? order_[kept - 1] : last_;
  }

  static constexpr int kBins = 1024;
  std::vector<float> logits_, weights_, maxima_;  // logits and weights of the kept ids
  std::vector<int32_t> ids_;
  std::vector<Entry> order_;
  mutable std::vector<double> sums_;
  double total_ = 0;
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
