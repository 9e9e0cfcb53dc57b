// The tokens of a row that top-p alone keeps: a threshold, and the kept mass of each block.
//
// A sample of the row brackets the threshold. One more pass adds up what lies above the bracket and lists what lies in
// it, and the threshold is searched in that list.

#pragma once

#include "fused.h"

namespace verispec {

inline float after(float x) { return std::nextafter(x, kInfinite); }
inline float preceding(float x) { return std::nextafter(x, kNone); }

// A token in the order of TKP-1: larger logits first, of equal ones the lower id.
struct Ranked {
  float logit;
  int32_t id;
  float weight;

  bool keeps(float other, int64_t other_id) const { return (other > logit) | ((other == logit) & (other_id <= id)); }
  static bool before(const Ranked& a, const Ranked& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }
};

// Tokens with their weights, in the order of their ids.
struct Candidates {
  std::vector<float> logits, weights;
  std::vector<int32_t> ids;
  int64_t size = 0;

  void reserve(int64_t room) {
    if (static_cast<int64_t>(ids.size()) >= room) return;
    logits.resize(2 * room);
    weights.resize(2 * room);
    ids.resize(2 * room);
  }

  double mass_from(float bound) const { return rows().weight_above(logits.data(), weights.data(), size, bound); }

  // Takes over what `from`, which may be this list, has from `low` to below `high`.
  void keep(const Candidates& from, float low, float high) {
    reserve(from.size + kLanes);
    size = rows().keep(from.logits.data(), from.weights.data(), from.ids.data(), from.size, low, high, logits.data(),
                       weights.data(), ids.data());
  }
};

// Finds the token of a list at which the cumulative mass, in the order of TKP-1, reaches a number.
class Search {
 public:
  // Halves what lies from `low` to below `high` until few tokens are left; `before` is the mass from `high` on.
  void narrow(const Candidates& from, double before, double want, float low, float high) {
    list_ = &from;
    low_ = low;
    high_ = high;
    before_ = before;
    while (list_->size > kFew) {
      const float middle = low_ / 2 + high_ / 2;
      if (!(middle > low_ && middle < high_)) return;
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
  Ranked last(double want) {
    sorted_.clear();
    for (int64_t i = 0; i < list_->size; ++i) sorted_.push_back({list_->logits[i], list_->ids[i], list_->weights[i]});
    if (sorted_.empty()) return {preceding(high_), std::numeric_limits<int32_t>::max(), 0};
    std::sort(sorted_.begin(), sorted_.end(), Ranked::before);
    size_t kept = 0;
    while (kept < sorted_.size() && (kept == 0 || before_ < want)) before_ += sorted_[kept++].weight;
    return sorted_[kept - 1];
  }

  // After `last`: the list around it, with all tokens of the same logit.
  const std::vector<Ranked>& around() const { return sorted_; }

 private:
  static constexpr int64_t kFew = 48;
  const Candidates* list_ = nullptr;
  Candidates own_;
  std::vector<Ranked> sorted_;
  float low_ = 0, high_ = 0;
  double before_ = 0;
};

class Nucleus {
 public:
  // The row's scan must have masses and sub-block maxima.
  void find(const Row& row, double p) {
    row_ = &row;
    total_ = 0;
    last_ = {kInfinite, -1, 0};
    const int64_t blocks = row.view().blocks();
    if (static_cast<int64_t>(mass_.size()) < blocks) {
      mass_.resize(blocks);
      start_.resize(blocks + 1);
    }
    std::fill(mass_.begin(), mass_.begin() + blocks, 0.0);
    if (!(row.total() > 0)) return;
    const double want = p * row.total();
    float low = row.top(), high = after(row.top());
    double above = 0;
    if (low == kInfinite || !(want > 0)) {
      list_top();
    } else {
      const float lowest = lowest_of(p);
      bracket(p, lowest, low, high);
      above = split(low, high);
      // The threshold lies on one side of the bracket if the sample misled.
      if (!(above < want)) {
        low = high;
        high = after(row.top());
        above = split(low, high);
      } else if (low > lowest && above + listed_.mass_from(low) < want) {
        high = low;
        low = lowest;
        above = split(low, high);
      }
    }
    search_.narrow(listed_, above, want, low, high);
    last_ = search_.last(want);
    const float heavier = after(last_.logit);
    for (int64_t b = 0; b < blocks && heavier > last_.logit; ++b) {
      const int64_t at = start_[b], n = start_[b + 1] - at;
      if (n > 0) mass_[b] += rows().weight_above(&listed_.logits[at], &listed_.weights[at], n, heavier);
    }
    for (const Ranked& token : search_.around()) {
      if (token.logit == last_.logit && token.id <= last_.id) mass_[token.id / kBlock] += token.weight;
    }
    for (int64_t b = 0; b < blocks; ++b) total_ += mass_[b];
  }

  double total() const { return total_; }
  bool keeps(float logit, int64_t id) const { return logit > kNone && last_.keeps(logit, id); }

  // Inverse CDF at u, as Row::draw.
  int64_t draw(double u, int64_t excluded, double& rest) const {
    return row_->draw(u, excluded, rest, mass_, [&](float logit, int64_t id) { return last_.keeps(logit, id); });
  }

 private:
  // All logits below weigh less than 1 - p together, so that none of them is kept. Half of that leaves room for
  // rounding.
  float lowest_of(double p) const {
    const double share = 0.5 * (1.0 - p) * row_->total() / static_cast<double>(row_->view().size());
    const double lowest = (row_->base().log + std::log2(share)) / row_->scale();
    return std::clamp(static_cast<float>(lowest), std::numeric_limits<float>::lowest(), row_->top());
  }

  // Sets the bracket by the light tokens of a few sub-blocks, since there are many of these: five standard deviations
  // on either side of what they tell.
  void bracket(double p, float lowest, float& low, float& high) {
    const RowView& view = row_->view();
    const int64_t subs = view.size() / kSubBlock;
    low = lowest;
    high = after(row_->top());
    if (subs < 4 * kSampled) return;
    sample_.reserve(kSampled * kSubBlock + kLanes);
    alignas(64) float buffer[kBlock];
    for (int64_t s = 0; s < kSampled; ++s) {
      const int64_t at = (2 * s + 1) * subs / (2 * kSampled);
      const float* x = view.block(at / kSubBlocks, buffer) + at % kSubBlocks * kSubBlock;
      std::copy(x, x + kSubBlock, &sample_.logits[s * kSubBlock]);
    }
    rows().weights(sample_.logits.data(), kSampled * kSubBlock, row_->base(), row_->scale(), sample_.weights.data());
    // Mass and squared weights of bins of equal width from `lowest` up. What is lighter goes to the first few in turn,
    // so that one addition does not wait for the one before.
    float bins[kLighter + kBins][2] = {};
    const float per_bin = (kBins - 1) / (row_->top() - lowest);
    for (int64_t i = 0; i < kSampled * kSubBlock; ++i) {
      const float w = sample_.weights[i], place = std::min((sample_.logits[i] - lowest) * per_bin, kBins - 1.0f);
      float* bin = bins[place > 0 ? kLighter + static_cast<int>(place) : static_cast<int>(i % kLighter)];
      bin[0] += w;
      bin[1] += w * w;
    }
    const double tail = (1.0 - p) * row_->total() * (kSampled * kSubBlock) / static_cast<double>(view.size());
    double mass = 0, squares = 0;
    for (int bin = -kLighter; bin < kBins; ++bin) {
      mass += bins[kLighter + bin][0];
      squares += bins[kLighter + bin][1];
      if (bin < 0) continue;
      const double spread = 5 * std::sqrt(squares);
      if (mass + spread < tail) low = lowest + static_cast<float>(bin) / per_bin;
      if (mass - spread > tail) {
        high = lowest + static_cast<float>(bin + 1) / per_bin;
        break;
      }
    }
  }

  // Lists what lies from `low` to below `high`; returns the mass from `high` on.
  double split(float low, float high) {
    const RowView& view = row_->view();
    const BlockStats& stats = row_->stats();
    alignas(64) float buffer[kBlock];
    int64_t count = 0;
    double above = 0;
    for (int64_t b = 0; b < view.blocks(); ++b) {
      start_[b] = count;
      mass_[b] = 0;
      if (stats.top[b] < low) continue;
      listed_.reserve(count + kBlock + kLanes);
      const float* x = view.block(b, buffer);
      const int64_t first = b * kBlock;
      int32_t* ids = &listed_.ids[count];
      int64_t listed = 0;
      mass_[b] = rows().split(x, view.block_size(b), &stats.sub[b * kSubBlocks], row_->base(), row_->scale(), low, high,
                              static_cast<int32_t>(first), ids, listed);
      above += mass_[b];
      for (int64_t i = 0; i < listed; ++i) listed_.logits[count + i] = x[ids[i] - first];
      count += listed;
    }
    weigh(count);
    return above;
  }

  // Lists the tokens with the largest logit.
  void list_top() {
    const RowView& view = row_->view();
    alignas(64) float buffer[kBlock];
    int64_t count = 0;
    for (int64_t b = 0; b < view.blocks(); ++b) {
      start_[b] = count;
      if (row_->stats().top[b] < row_->top()) continue;
      listed_.reserve(count + kBlock + kLanes);
      count += rows().select(view.block(b, buffer), view.block_size(b), row_->top(), static_cast<int32_t>(b * kBlock),
                             &listed_.ids[count]);
    }
    std::fill(listed_.logits.begin(), listed_.logits.begin() + count, row_->top());
    weigh(count);
  }

  void weigh(int64_t count) {
    start_[row_->view().blocks()] = count;
    listed_.size = count;
    if (count > 0) rows().weights(listed_.logits.data(), count, row_->base(), row_->scale(), listed_.weights.data());
  }

  static constexpr int64_t kSampled = 32;  // sub-blocks
  static constexpr int kBins = 512, kLighter = 16;
  const Row* row_ = nullptr;
  Candidates sample_, listed_;
  Search search_;
  std::vector<double> mass_;    // kept, of each block
  std::vector<int64_t> start_;  // of each block in the list
  double total_ = 0;
  Ranked last_{kInfinite, -1, 0};
};

}  // namespace verispec
