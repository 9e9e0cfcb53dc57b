// The tokens of a row that top-p alone keeps: a threshold, and the kept mass of each block.
//
// A sample of the row brackets the threshold from below. If it also tells a bound just above the threshold before the
// scan, the scan adds up the mass from that bound on. One more pass lists the logits between the two, and the threshold
// is searched in that list. If a row's mass lies on few tokens, the sample is too poor for that, and all of these are
// listed. Most rows are never searched: that a token is kept shows in the mass before it.

#pragma once

#include "search.h"

namespace verispec {

// Logits of a few sub-blocks, to estimate masses of the row. Estimates save work, but no result depends on them.
class Sample {
 public:
  // False if the row is too short.
  bool take(const RowView& view) {
    const int64_t subs = view.size() / kSubBlock;
    share_ = 0;
    if (subs < 4 * kSubs) return false;
    list_.reserve(kSize);
    for (int64_t s = 0; s < kSubs; ++s) {
      const int64_t at = (2 * s + 1) * subs / (2 * kSubs);
      float* to = &list_.logits[s * kSubBlock];
      const float* x = view.read(at * kSubBlock, kSubBlock, to);
      if (x != to) std::copy(x, x + kSubBlock, to);
    }
    list_.size = kSize;
    top_ = rows().maximum(list_.logits.data(), kBlock);
    for (int64_t i = kBlock; i < kSize; i += kBlock) {
      top_ = std::max(top_, rows().maximum(&list_.logits[i], kBlock));
    }
    if (!(top_ > kNone && top_ < kInfinite)) return false;
    share_ = static_cast<double>(kSize) / static_cast<double>(view.size());
    return true;
  }

  bool is_taken() const { return share_ > 0; }
  float top() const { return top_; }
  // The sample's part of the row.
  double share() const { return share_; }

  void weigh(Base base, float scale) {
    base_ = base;
    scale_ = scale;
    list_.weigh(base, scale);
    total_ = list_.mass_from(kNone);
  }

  double total() const { return total_; }
  // The number of equal weights of which the total would be as uncertain.
  double effective_size() const { return total_ * total_ / squares_of(list_.weights.data(), list_.size); }

  // The logit below which `mass` of the sample lies, less (negative: and) `spreads` standard deviations. No weight
  // below a logit is larger than its own, which bounds the variance.
  float limit_of(double mass, double spreads, float lowest) const {
    float low = std::min(lowest, top_), high = after(top_);
    for (int step = 0; step < kSteps; ++step) {
      const float middle = low / 2 + high / 2;
      const double below = total_ - list_.mass_from(middle);
      const double weight = std::exp2(static_cast<double>(middle) * scale_ - base_.log);
      (below + spreads * std::sqrt(below * weight) < mass ? low : high) = middle;
    }
    return spreads > 0 ? low : high;
  }

 private:
  static constexpr int64_t kSubs = 16, kSize = kSubs * kSubBlock;
  static constexpr int kSteps = 8;
  static_assert(kSize % kBlock == 0);

  Candidates list_;
  Base base_{};
  float scale_ = 0, top_ = kNone;
  double share_ = 0, total_ = 0;
};

class Nucleus {
 public:
  // Before the scan: returns the bound from which on it adds up masses, minus infinity for none. The draft's weight
  // counts with the sample, as it is often the largest part of a row. A poor sample gives a bound that only shows
  // tokens above it to be kept, and none is needed if the draft seems heavy enough to be kept whatever lies before it.
  // In a row too short for a sample the draft's logit is the bound.
  float bound(const RowView& view, float scale, double p, float draft) {
    is_guessed_ = false;
    bound_ = draft;
    if (!sample_.take(view) || !(p > 0)) return bound_;
    const Base base = Base::of(draft > sample_.top() && draft < kInfinite ? draft : sample_.top(), scale);
    sample_.weigh(base, scale);
    const double weight = draft > kNone ? std::exp2(static_cast<double>(draft) * scale - base.log) : 0.0;
    const double effective = sample_.effective_size(), ours = weight * sample_.share();
    is_guessed_ = effective >= kEnough;
    if (!is_guessed_ && ours > 2 * (1.0 - p) * (sample_.total() + ours)) return bound_ = kNone;
    const double tail = (1.0 - p) * (sample_.total() * (1 + kSpreads / std::sqrt(effective)) + ours);
    bound_ = sample_.limit_of(tail, -kSpreads, lightest(tail, sample_.share(), view.size(), base, scale));
    return bound_;
  }

  // A row of which many tokens are kept needs no maxima of sub-blocks to skip those without any.
  bool needs_maxima() const { return !is_guessed_; }

  // After the scan: true if less than `want` lies before the draft for certain.
  bool surely_keeps(const Row& row, float draft, double weight, double want) const {
    const bool is_above = bound_ > kNone && draft >= bound_;
    return (is_above ? row.above() : row.masses()).total() - weight < want;
  }

  // After the scan of a row whose mass lies on few tokens: the mass of the tokens above a logit, and of those from it on.
  // Both are infinite if the logit is too small to be kept.
  std::pair<double, double> masses_from(const Row& row, float logit, double p) {
    const double tail = (1.0 - p) * row.total();
    if (logit < lightest(tail, 1, row.view().size(), row.base(), row.scale())) return {kInfinite, kInfinite};
    row_ = &row;
    list(logit, kInfinite);
    return {logit < kInfinite ? listed_.mass_from(after(logit)) : 0.0, listed_.mass_from(logit)};
  }

  // After the scan, which has masses, those from the bound on, and sub-block maxima where they are needed.
  void find(const Row& row, double p) {
    row_ = &row;
    last_ = {kInfinite, -1};
    const int64_t blocks = row.view().blocks();
    masses_.clear(blocks);
    if (!(row.total() > 0)) return;
    const double want = p * row.total();
    float low = row.top(), high = kInfinite, hint = kInfinite;
    double above = 0;
    if (low == kInfinite || !(want > 0)) {
      list(low, high);
    } else {
      const bool is_above = is_guessed_ && row.above().total() < want;
      if (is_above) {
        high = bound_;
        masses_ = row.above();
        above = masses_.total();
      }
      const double tail = (1.0 - p) * row.total();
      const float lowest = std::min(lightest(tail, 1, row.view().size(), row.base(), row.scale()), row.top());
      low = std::min(lowest, high);
      if (sample_.is_taken()) {
        sample_.weigh(row.base(), row.scale());
        low = std::min(std::max(low, sample_.limit_of(tail * sample_.share(), kSpreads, lowest)), high);
        if (!is_above) hint = sample_.limit_of(tail * sample_.share(), -kSpreads, lowest);
      }
      list(low, high);
      if (low > lowest && above + listed_.mass_from(low) < want) {
        low = lowest;
        list(low, high);
      }
    }
    search_.narrow(listed_, above, want, low, std::min(high, after(row.top())), hint);
    keep_to(search_.last(want));
  }

  double total() const { return masses_.total(); }
  bool keeps(float logit, int64_t id) const { return logit > kNone && last_.keeps(logit, id); }

  // Inverse CDF at u, as Row::draw.
  int64_t draw(double u, int64_t excluded, double& rest) const {
    return row_->draw(u, excluded, rest, masses_, [&](const float* x, int64_t first, int64_t n, float* weights) {
      const int64_t equal = std::clamp<int64_t>(int64_t{last_.id} + 1 - first, 0, n);
      for (int64_t i = 0; i < equal; ++i) weights[i] = x[i] >= last_.logit ? weights[i] : 0.0f;
      for (int64_t i = equal; i < n; ++i) weights[i] = x[i] > last_.logit ? weights[i] : 0.0f;
    });
  }

 private:
  // All logits below weigh less than `tail` together, so that none of them is kept. Half of that leaves room for
  // rounding. `tail` is that of a part of a row of `size` tokens.
  static float lightest(double tail, double part, int64_t size, Base base, float scale) {
    const double weight = 0.5 * tail / (part * static_cast<double>(size));
    constexpr double kMost = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp((base.log + std::log2(weight)) / scale, -kMost, kMost));
  }

  // Lists what lies from `low` to below `high`. Each block's part ends with minus infinity, on a multiple of kLanes.
  void list(float low, float high) {
    const RowView& view = row_->view();
    const BlockStats& stats = row_->stats();
    alignas(64) float buffer[kBlock];
    int64_t count = 0;
    start_.resize(std::max(start_.size(), static_cast<size_t>(view.blocks() + 1)));
    for (int64_t b = 0; b < view.blocks(); ++b) {
      start_[b] = count;
      if (stats.top[b] < low) continue;
      listed_.reserve(count + kBlock + kLanes);
      float* to = &listed_.logits[count];
      const float* sub = is_guessed_ ? nullptr : &stats.sub[b * kSubBlocks];
      const int64_t n = rows().list(view.block(b, buffer), view.block_size(b), sub, low, high, to);
      std::fill(to + n, to + n + kLanes, kNone);
      count += (n + kLanes - 1) / kLanes * kLanes;
    }
    start_[view.blocks()] = listed_.size = count;
    listed_.weigh(row_->base(), row_->scale());
  }

  void keep_to(const Limit& limit) {
    const int64_t blocks = row_->view().blocks();
    const float from = limit.are_all() ? limit.logit : after(limit.logit);
    for (int64_t b = 0; b < blocks && (limit.are_all() || from > limit.logit); ++b) {
      const int64_t at = start_[b], n = start_[b + 1] - at;
      if (n > 0) masses_[b] += rows().weight_above(&listed_.logits[at], &listed_.weights[at], n, from);
    }
    last_ = {limit.logit, std::numeric_limits<int32_t>::max()};
    if (!limit.are_all()) keep_equals(limit);
    masses_.add_up();
  }

  // Some of the tokens with the limit's logit are kept: those with the lowest ids.
  void keep_equals(const Limit& limit) {
    int64_t left = limit.equals;
    for (int64_t b = 0; b < row_->view().blocks(); ++b) {
      int64_t here = 0;
      for (int64_t i = start_[b]; i < start_[b + 1] && here < left; ++i) {
        if (listed_.logits[i] != limit.logit) continue;
        masses_[b] += listed_.weights[i];
        ++here;
      }
      left -= here;
      if (left > 0) continue;
      alignas(64) float buffer[kBlock];
      const float* x = row_->view().block(b, buffer);
      last_.id = static_cast<int32_t>(b * kBlock + nth_equal(x, limit.logit, here));
      return;
    }
  }

  static constexpr double kSpreads = 2;  // standard deviations; a miss costs another pass
  static constexpr double kEnough = 25;  // equal weights that tell a total to within a fifth

  const Row* row_ = nullptr;
  Sample sample_;
  Candidates listed_;
  Search search_;
  BlockMasses masses_;          // kept
  std::vector<int64_t> start_;  // of each block in the list
  float bound_ = kNone;
  bool is_guessed_ = false;
  Last last_{kInfinite, -1};
};

}  // namespace verispec
