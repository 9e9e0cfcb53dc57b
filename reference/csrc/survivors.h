// The tokens of a row that top-k and top-p keep (clauses TKP-1 to TKP-5): a list for top-k, a threshold for top-p
// alone, never a mask.

#pragma once

#include <functional>

#include "nucleus.h"

namespace verispec {

constexpr int64_t kTrials = 64;

// The tokens that top-k, and then top-p, keep, in the order of their ids, with their mass.
class Survivors {
 public:
  // The row's scan must have sub-block maxima. k is below the vocabulary, and p of 1 keeps all.
  void find(const Row& row, int64_t k, double p) {
    const float bound = std::max(bound_of_k(row, k), std::numeric_limits<float>::lowest());
    gather(row, bound);
    last_ = {bound, std::numeric_limits<int32_t>::max()};
    if (k < kept_.size) {
      order_.resize(kept_.size);
      for (int64_t i = 0; i < kept_.size; ++i) order_[i] = {kept_.logits[i], ids_[i]};
      std::nth_element(order_.begin(), order_.begin() + (k - 1), order_.end(), [](const Last& a, const Last& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
      });
      keep_to(order_[k - 1]);
    }
    kept_.weigh(row.base(), row.scale());
    if (!(p >= 1.0) && kept_.size > 0) {
      const double want = p * sum();
      search_.narrow(kept_, 0, want, last_.logit, after(row.top()));
      const Limit limit = search_.last(want);
      // Of the logit at the limit of k, that has dropped some already.
      const int32_t last = limit.logit == last_.logit ? last_.id : std::numeric_limits<int32_t>::max();
      keep_to({limit.logit,
               limit.are_all() ? last : ids_[nth_equal(kept_.logits.data(), limit.logit, limit.equals)]});
    }
    total_ = sum();
    sums_.clear();
  }

  double total() const { return total_; }
  bool keeps(float logit, int64_t id) const { return logit > kNone && last_.keeps(logit, id); }
  int64_t size() const { return kept_.size; }
  int64_t id(int64_t i) const { return ids_[i]; }

  // Inverse CDF at u, without the token `excluded` (-1: none). `rest` is the mass that was drawn from; -1 where none.
  int64_t draw(double u, int64_t excluded, double& rest) const {
    add_up();
    const int32_t* ids = ids_.data();
    const int64_t size = kept_.size, at = std::lower_bound(ids, ids + size, excluded) - ids;
    const int64_t hole = at < size && ids[at] == excluded ? at : size;
    const double all = sums_.empty() ? 0.0 : sums_.back();
    const double below = hole == 0 ? 0.0 : hole < size ? sums_[hole - 1] : all;
    const double above = hole < size ? all - sums_[hole] : 0.0;
    rest = below + above;
    if (!(rest > 0)) return -1;
    const double target = u * rest;
    if (target < below || !(above > 0)) return ids[std::min(first_above(0, target), hole - 1)];
    return ids[std::min(first_above(hole + 1, target - below + sums_[hole]), size - 1)];
  }

 private:
  int64_t first_above(int64_t begin, double target) const {
    return std::upper_bound(sums_.begin() + begin, sums_.end(), target) - sums_.begin();
  }

  double sum() const { return sum_of(kept_.weights.data(), kept_.size); }

  // Cumulative masses; few rows need them.
  void add_up() const {
    if (!sums_.empty()) return;
    sums_.resize(kept_.size);
    double total = 0;
    for (int64_t i = 0; i < kept_.size; ++i) sums_[i] = total += kept_.weights[i];
  }

  // Drops the tokens after `last`. Without branches: half of them would be predicted wrongly.
  void keep_to(const Last& last) {
    last_ = last;
    int64_t kept = 0;
    for (int64_t i = 0; i < kept_.size; ++i) {
      const float logit = kept_.logits[i], weight = kept_.weights[i];
      const int32_t id = ids_[i];
      kept_.logits[kept] = logit;
      kept_.weights[kept] = weight;
      ids_[kept] = id;
      kept += last.keeps(logit, id);
    }
    kept_.size = kept;
  }

  // At least k logits are as large as the k-th largest maximum of a sub-block.
  float bound_of_k(const Row& row, int64_t k) {
    const int64_t subs = (row.view().size() + kSubBlock - 1) / kSubBlock;
    if (k > subs) return kNone;
    // Whole blocks are fewer, and what is below the k-th largest of their maxima is below that of sub-blocks.
    const float* tops = row.stats().top.data();
    maxima_.assign(tops, tops + row.view().blocks());
    const float least = k <= row.view().blocks() ? largest(k) : kNone;
    maxima_.resize(subs + kLanes);
    maxima_.resize(rows().list(row.stats().sub.data(), subs, nullptr, least, kInfinite, maxima_.data()));
    return largest(k);
  }

  // The k-th largest of the maxima.
  float largest(int64_t k) {
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(), std::greater<float>());
    return maxima_[k - 1];
  }

  void gather(const Row& row, float bound) {
    alignas(64) float buffer[kBlock];
    const RowView& view = row.view();
    int64_t size = 0;
    for (int64_t b = 0; b < view.blocks(); ++b) {
      if (row.stats().top[b] < bound) continue;
      const float* x = view.block(b, buffer);
      const int64_t n = view.block_size(b), first = b * kBlock;
      kept_.reserve(size + kBlock + kLanes);
      ids_.resize(kept_.logits.size());
      for (int64_t begin = 0; begin < n; begin += kSubBlock) {
        if (row.stats().sub[b * kSubBlocks + begin / kSubBlock] < bound) continue;
        int32_t* ids = &ids_[size];
        const int64_t count = rows().select(x + begin, std::min(kSubBlock, n - begin), bound,
                                            static_cast<int32_t>(first + begin), ids);
        for (int64_t i = 0; i < count; ++i) kept_.logits[size + i] = x[ids[i] - first];
        size += count;
      }
    }
    kept_.size = size;
  }

  Candidates kept_;
  std::vector<int32_t> ids_;
  Search search_;
  std::vector<float> maxima_;
  std::vector<Last> order_;
  mutable std::vector<double> sums_;
  double total_ = 0;
  Last last_{kInfinite, -1};
};

// A target row of a sampled request: all of its tokens, or the survivors of its limits. With top-p alone the masses of
// the scan show for most tokens whether they are kept; the row is searched only where they do not.
class TargetRow {
 public:
  Row row;

  // Before the scan of a row that top-p alone limits: the bound from which on it adds up masses.
  float bound(const RowView& view, float scale, double p, float draft) { return nucleus_.bound(view, scale, p, draft); }

  // `k` of 0 and `p` of 1 are no limits. The row's scan has masses unless there is top-k, and sub-blocks where limited.
  void limit(int64_t k, double p) {
    limits_ = k > 0 ? Limits::top_k : !(p >= 1.0) ? Limits::top_p : Limits::none;
    p_ = p;
    is_searched_ = limits_ != Limits::top_p;
    if (limits_ == Limits::top_k) survivors_.find(row, k, p);
  }

  bool needs_maxima(int64_t k, double p) const { return k > 0 || (!(p >= 1.0) && nucleus_.needs_maxima()); }

  static bool has_limits(int64_t k, double p) { return k > 0 || !(p >= 1.0); }

  // True if the token's weight is above `share` of the mass that top-p alone keeps, by the mass from the scan's bound
  // on, before anything is searched. What is kept weighs from p to p and the token's weight.
  bool surely_accepts(int64_t token, double share, double p) const {
    const float logit = row.view().get(token);
    const double total = row.total(), weight = row.weight(logit);
    return nucleus_.surely_keeps(row, logit, weight, (p - kRoom) * total) &&
           weight > share * (1 + kRoom) * std::min(total, (p + kRoom) * total + weight);
  }

  // After `limit`: true if the limits keep the token and its weight is above `share` of what they keep.
  bool accepts(int64_t token, double share) {
    const float logit = row.view().get(token);
    const double weight = row.weight(logit);
    if (!is_searched_) {
      const double most = (p_ + kRoom) * row.total(), least = (p_ - kRoom) * row.total();
      if (weight <= share * (1 - kRoom) * least) return false;
      if (surely_accepts(token, share, p_)) return true;
      if (nucleus_.needs_maxima()) {
        const auto [above, upto] = nucleus_.masses_from(row, logit, p_);
        if (above > most) return false;
        const bool is_kept = upto - weight < least, is_last = is_kept && above + weight > most;
        if (weight <= share * (1 - kRoom) * (above + weight)) return false;
        if (is_kept && weight > share * (1 + kRoom) * (is_last ? upto : std::min(row.total(), most + weight))) return true;
      }
      search();
    }
    return keeps(logit, token) && weight > share * total();
  }

  // Weight of the kept tokens.
  double total() {
    search();
    return limits_ == Limits::none ? row.total() : limits_ == Limits::top_k ? survivors_.total() : nucleus_.total();
  }

  // A candidate by inverse CDF at u, without the token `excluded` (-1: none). `rest` is the mass that was drawn from; -1
  // where there is none.
  int64_t candidate(double u, int64_t excluded, double& rest) const {
    return limits_ == Limits::top_k ? survivors_.draw(u, excluded, rest) : row.draw(u, excluded, rest);
  }

  // The same among the kept tokens alone.
  int64_t draw_kept(double u, int64_t excluded, double& rest) {
    search();
    return limits_ == Limits::top_p ? nucleus_.draw(u, excluded, rest) : candidate(u, excluded, rest);
  }

  // The first candidate that the limits keep, without the token `excluded` while another one is kept; 0 where none is.
  int64_t draw(const RowNumbers& numbers, int64_t excluded) {
    double rest = 0;
    for (int64_t t = 0; t < kTrials; ++t) {
      const int64_t token = candidate(numbers.trial(t).first, excluded, rest);
      if (token < 0) break;
      if (accepts(token, 0.0)) return token;
    }
    const double u = numbers.trial(kTrials).first;
    const int64_t token = draw_kept(u, excluded, rest);
    return std::max<int64_t>(token < 0 ? draw_kept(u, -1, rest) : token, 0);
  }

  // Calls visit(token, weight) for every kept token, in the order of ids, until it returns true. Weights are exact to
  // double: differences of two distributions that are nearly equal are what is left of them.
  template <class Visit>
  void each(Visit visit) {
    search();
    const bool is_list = limits_ == Limits::top_k;
    const int64_t count = is_list ? survivors_.size() : row.view().size();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = is_list ? survivors_.id(i) : i;
      const float logit = row.view().get(token);
      if (keeps(logit, token) && visit(token, row.weight(logit))) return;
    }
  }

 private:
  enum class Limits : uint8_t { none, top_k, top_p };
  static constexpr double kRoom = 1e-5;  // for rounding, as a part of the mass

  bool keeps(float logit, int64_t token) const {
    if (limits_ == Limits::none) return logit > kNone;
    return limits_ == Limits::top_k ? survivors_.keeps(logit, token) : nucleus_.keeps(logit, token);
  }

  void search() {
    if (!is_searched_) nucleus_.find(row, p_);
    is_searched_ = true;
  }

  Survivors survivors_;
  Nucleus nucleus_;
  Limits limits_ = Limits::none;
  double p_ = 1.0;
  bool is_searched_ = true;
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
  // 0 for every p that keeps one token alone: those below 0, and NaN.
  double p(int64_t state) const {
    const double p = top_p ? top_p->get(state) : 1.0;
    return p > 0 ? p : 0;
  }
  RowNumbers numbers(int64_t state, int64_t row, int64_t step) const { return {seed.get(state), pos.get(row), step}; }
};

}  // namespace verispec
