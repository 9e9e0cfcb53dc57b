// Shared by the fused kernels: rows of raw logits, their masses in blocks, draws, and the walk over requests.
//
// A row is read once: each block of kBlock logits gives its maximum and its sum of exponentials in one pass. Masses of
// blocks are combined in double, in the order of their ids, so that neither the number of threads nor the instruction
// set changes a result. Scratch belongs to a thread and grows once.

#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "philox.h"
#include "rows.h"
#include "tensor.h"

namespace verispec {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kInfinite = -kNone;

// In eight chains, so that one addition does not wait for the one before.
inline double sum_of(const float* x, int64_t n) {
  double totals[8] = {};
  const int64_t whole = n / 8 * 8;
  for (int64_t i = 0; i < whole; i += 8) {
    for (int64_t chain = 0; chain < 8; ++chain) totals[chain] += x[i + chain];
  }
  for (int64_t i = whole; i < n; ++i) totals[i - whole] += x[i];
  return ((totals[0] + totals[4]) + (totals[2] + totals[6])) + ((totals[1] + totals[5]) + (totals[3] + totals[7]));
}

// The sum of the squares of n weights, a multiple of 8.
inline double squares_of(const float* x, int64_t n) {
  float totals[8] = {};
  for (int64_t i = 0; i < n; i += 8) {
    for (int64_t chain = 0; chain < 8; ++chain) totals[chain] += x[i + chain] * x[i + chain];
  }
  return sum_of(totals, 8);
}

// The first of n weights whose cumulative sum exceeds `target`, else the last one with weight; -1 where there is none.
inline int64_t draw_from(const float* weights, int64_t n, double target) {
  double before = 0;
  int64_t begin = 0;
  for (; begin + kSubBlock < n; begin += kSubBlock) {
    const double sum = sum_of(weights + begin, kSubBlock);
    if (before + sum > target) break;
    before += sum;
  }
  int64_t token = -1;
  for (int64_t i = begin; i < n; ++i) {
    if (!(weights[i] > 0)) continue;
    token = i;
    before += weights[i];
    if (before > target) break;
  }
  while (token < 0 && begin-- > 0) {
    if (weights[begin] > 0) token = begin;
  }
  return token;
}

// The first `size` logits of one row of a tensor, in blocks.
class RowView {
 public:
  RowView() = default;
  // Row i of a matrix, or row (i, j) of a tensor of rank 3.
  RowView(const Tensor& tensor, int64_t i, int64_t size)
      : RowView(tensor.type, i * tensor.stride[0], tensor.stride[1], size, tensor.data) {}
  RowView(const Tensor& tensor, int64_t i, int64_t j, int64_t size)
      : RowView(tensor.type, i * tensor.stride[0] + j * tensor.stride[1], tensor.stride[2], size, tensor.data) {}

  int64_t size() const { return size_; }
  int64_t blocks() const { return (size_ + kBlock - 1) / kBlock; }
  int64_t block_size(int64_t block) const { return std::min(kBlock, size_ - block * kBlock); }

  float get(int64_t x) const {
    const char* at = data_ + x * stride_ * width(type_);
    if (type_ == Type::float32) return *reinterpret_cast<const float*>(at);
    const uint16_t bits = *reinterpret_cast<const uint16_t*>(at);
    return type_ == Type::bfloat16 ? widen_bfloat16(bits) : widen_float16(bits);
  }

  // The logits of a block: where they are, or widened into `buffer`.
  const float* block(int64_t block, float* buffer) const { return read(block * kBlock, block_size(block), buffer); }

  // True if `read` needs no buffer.
  bool is_plain() const { return stride_ == 1 && type_ == Type::float32; }

  // The same for n logits.
  const float* read(int64_t begin, int64_t n, float* buffer) const {
    if (is_plain()) return reinterpret_cast<const float*>(data_) + begin;
    if (stride_ == 1 && type_ == Type::bfloat16) {
      rows().widen_bfloat16(reinterpret_cast<const uint16_t*>(data_) + begin, n, buffer);
    } else {
      for (int64_t x = 0; x < n; ++x) buffer[x] = get(begin + x);
    }
    return buffer;
  }

 private:
  RowView(Type type, int64_t offset, int64_t stride, int64_t size, const char* data)
      : type_(type), stride_(stride), size_(size), data_(data + offset * width(type)) {}

  static int64_t width(Type type) { return type == Type::float32 ? 4 : 2; }

  Type type_ = Type::float32;
  int64_t stride_ = 1, size_ = 0;
  const char* data_ = nullptr;
};

// Summary of each block after a pass over a row; threads fill different blocks.
struct BlockStats {
  std::vector<float> top, sub;     // sub: maxima of sub-blocks
  std::vector<float> mass, above;  // relative to 2^log of the block
  std::vector<double> log;

  void reserve(int64_t blocks) {
    if (top.size() >= static_cast<size_t>(blocks)) return;
    for (auto* each : {&top, &mass, &above}) each->resize(blocks);
    log.resize(blocks);
    sub.resize(blocks * kSubBlocks);
  }

  void scan(const RowView& row, int64_t begin, int64_t end, float scale, bool with_mass, bool with_sub,
            float bound = kNone) {
    alignas(64) float buffer[kBlock];
    const RowFunctions& functions = rows();
    // The base of the row's first logits serves most of its blocks, whichever thread reads them.
    const int64_t few = std::min(kSubBlock, row.size());
    const Base guess = with_mass ? Base::of(functions.maximum(row.read(0, few, buffer), few), scale) : Base{};
    const int64_t step = row.is_plain() ? end - begin : 1;
    for (int64_t b = begin; b < end; b += step) {
      const int64_t n = std::min(step * kBlock, row.size() - b * kBlock);
      const float* x = row.read(b * kBlock, n, buffer);
      float* maxima = with_sub ? &sub[b * kSubBlocks] : nullptr;
      if (with_mass) {
        functions.scan(x, n, guess, scale, bound, {&top[b], &mass[b], &above[b], &log[b], maxima});
      } else {
        functions.maxima(x, n, &top[b], maxima);
      }
    }
  }
};

// 2^y for y <= 0, exact where y is an integer.
inline double exact_exp2(double y) {
  const auto whole = y >= -1022.0 ? static_cast<int64_t>(y) : 0;
  if (y >= -1022.0 && y == static_cast<double>(whole)) {
    const uint64_t bits = static_cast<uint64_t>(whole + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return power;
  }
  return std::exp2(y);
}

// Masses of the blocks of a row, and their cumulative sums.
class BlockMasses {
 public:
  void clear(int64_t blocks) {
    masses_.assign(blocks, 0.0);
    sums_.assign(blocks, 0.0);
  }

  double& operator[](int64_t block) { return masses_[block]; }
  double operator[](int64_t block) const { return masses_[block]; }
  double total() const { return sums_.empty() ? 0.0 : sums_.back(); }

  void add_up() {
    double total = 0;
    for (size_t b = 0; b < masses_.size(); ++b) sums_[b] = total += masses_[b];
  }

  // The first block up to which more than `target` lies, else the last one with mass; `before` becomes the mass before
  // it. There must be some mass.
  int64_t find(double target, double& before) const {
    auto b = std::upper_bound(sums_.begin(), sums_.end(), target) - sums_.begin();
    if (b == static_cast<int64_t>(sums_.size())) {
      while (!(masses_[--b] > 0)) {
      }
    }
    before = b > 0 ? sums_[b - 1] : 0.0;
    return b;
  }

 private:
  std::vector<double> masses_, sums_;
};

// A row after its scan: its maximum, and its masses relative to 2^log of its base.
class Row {
 public:
  // Combines the blocks; `with_mass` if the scan had it.
  void combine(const RowView& view, const BlockStats& stats, float scale, bool with_mass) {
    view_ = view;
    stats_ = &stats;
    scale_ = scale;
    const int64_t blocks = view.blocks();
    top_ = rows().maximum(stats.top.data(), blocks);
    base_ = Base::of(top_, scale);
    masses_.clear(with_mass ? blocks : 0);
    above_.clear(with_mass ? blocks : 0);
    if (!with_mass) return;
    for (int64_t b = 0; b < blocks; ++b) {
      const double to_row = factor(b);
      masses_[b] = stats.mass[b] * to_row;
      above_[b] = stats.above[b] * to_row;
    }
    masses_.add_up();
    above_.add_up();
  }

  // Of all logits, and of those of at least the scan's bound.
  const BlockMasses& masses() const { return masses_; }
  const BlockMasses& above() const { return above_; }

  const RowView& view() const { return view_; }
  const BlockStats& stats() const { return *stats_; }
  float top() const { return top_; }
  float scale() const { return scale_; }
  Base base() const { return base_; }
  double total() const { return masses_.total(); }

  // Of one logit.
  double weight(float logit) const {
    if (top_ == kInfinite) return logit == top_;
    return logit > kNone ? std::exp2(static_cast<double>(logit) * scale_ - base_.log) : 0.0;
  }

  int64_t argmax() const {
    if (top_ == kNone) return 0;
    alignas(64) float buffer[kBlock];
    int64_t b = 0, i = 0;
    while (stats_->top[b] != top_) ++b;
    const float* x = view_.block(b, buffer);
    while (x[i] != top_) ++i;
    return b * kBlock + i;
  }

  // Inverse CDF at u, without the token `excluded` (-1: none). `rest` is the mass that was drawn from; -1 where none.
  int64_t draw(double u, int64_t excluded, double& rest) const {
    return draw(u, excluded, rest, masses_, [](const float*, int64_t, int64_t, float*) {});
  }

  // The same among the tokens to which filter(logits, first id, n, weights) leaves their weights; `masses` is theirs.
  template <class Filter>
  int64_t draw(double u, int64_t excluded, double& rest, const BlockMasses& masses, const Filter& filter) const {
    alignas(64) float weights[kBlock];
    double before = 0;
    if (excluded < 0) {
      rest = masses.total();
      if (!(rest > 0)) return -1;
      const int64_t found = masses.find(u * rest, before);
      const double factor = block_weights(found, weights, filter);
      return found * kBlock + draw_from(weights, view_.block_size(found), (u * rest - before) / factor);
    }
    const int64_t hole = excluded / kBlock, blocks = view_.blocks();
    const double hole_factor = block_weights(hole, weights, filter);
    weights[excluded % kBlock] = 0;
    const double hole_mass = sum_of(weights, view_.block_size(hole)) * hole_factor;
    rest = 0;
    for (int64_t b = 0; b < blocks; ++b) rest += b == hole ? hole_mass : masses[b];
    if (!(rest > 0)) return -1;
    const double target = u * rest;
    int64_t found = -1;
    for (int64_t b = 0; b < blocks; ++b) {
      const double mass = b == hole ? hole_mass : masses[b];
      if (mass > 0) found = b;
      if (before + mass > target) break;
      before += mass;
    }
    // By rounding the target may lie past the last block with mass: its last token is drawn then.
    const double factor = block_weights(found, weights, filter);
    if (found == hole) weights[excluded % kBlock] = 0;
    return found * kBlock + draw_from(weights, view_.block_size(found), (target - before) / factor);
  }

  // The weights of a block relative to its own base; returns the factor to the row's.
  template <class Filter>
  double block_weights(int64_t block, float* weights, const Filter& filter) const {
    alignas(64) float buffer[kBlock];
    const float top = stats_->top[block];
    const int64_t n = view_.block_size(block);
    if (top == kNone || (top_ == kInfinite && top < top_)) {
      std::fill(weights, weights + n, 0.0f);
      return 0;
    }
    const Base base = Base::of(top, scale_);
    const float* x = view_.block(block, buffer);
    rows().weights(x, n, base, scale_, weights);
    filter(x, block * kBlock, n, weights);
    return top == kInfinite ? 1.0 : exact_exp2(base.log - base_.log);
  }

 private:
  RowView view_;
  const BlockStats* stats_ = nullptr;
  float scale_ = 0, top_ = kNone;
  Base base_{};
  BlockMasses masses_, above_;

  // From the mass of a block's own base to the row's. Logits of positive infinity have all of a row's mass.
  double factor(int64_t block) const {
    if (top_ == kInfinite) return stats_->top[block] == kInfinite ? 1.0 : 0.0;
    return stats_->mass[block] > 0 ? exact_exp2(stats_->log[block] - base_.log) : 0.0;
  }
};

// Within what the exponent of a float32 weight holds.
inline float scale_of(double temperature) {
  return static_cast<float>(std::clamp(1.4426950408889634 / temperature, 1e-35, 1e30));
}

// The numbers of one row: an acceptance test, and the trials of a draw by inverse CDF.
class RowNumbers {
 public:
  RowNumbers(int64_t seed, int64_t pos, int64_t step) : seed_(seed), pos_(pos), step_(step) {}

  double acceptance() const { return Numbers(seed_, pos_, step_, Draw::accept).uniform(); }

  // The number of a trial's inverse CDF, and that of its acceptance test.
  std::pair<double, double> trial(int64_t t) const {
    const Words words = Numbers(seed_, pos_, step_, Draw::inverse).words(t);
    const uint64_t bits = static_cast<uint64_t>(words[0]) << 20 | words[1] >> 12;
    return {(static_cast<double>(bits) + 0.5) * 0x1p-52, Numbers::to_uniform(words[2])};
  }

 private:
  int64_t seed_, pos_, step_;
};

// The rows of a batch, and where its results go.
struct FusedBatch {
  Integers sampled, num_sampled, num_rejected, next_token, next_row, draft_sampled, cu_num_logits, idx_mapping;
  int64_t columns, vocabulary;

  int64_t size() const { return idx_mapping.size(); }
  int64_t first(int64_t b) const { return cu_num_logits.get(b); }
  int64_t drafts(int64_t b) const { return cu_num_logits.get(b + 1) - first(b) - 1; }
  // -1 for padding and for a request without rows.
  int64_t state(int64_t b) const { return drafts(b) >= 0 ? idx_mapping.get(b) : -1; }
  int64_t draft(int64_t b, int64_t step) const { return step < drafts(b) ? draft_sampled.get(first(b) + step + 1) : -1; }
  int64_t blocks() const { return (vocabulary + kBlock - 1) / kBlock; }

  void write(int64_t b, int64_t accepted, int64_t token) const {
    for (int64_t i = 0; i < columns; ++i) sampled.set(b, i, i < accepted ? draft(b, i) : i == accepted ? token : -1);
    num_sampled.set(b, accepted + 1);
    num_rejected.set(b, drafts(b) - accepted);
    next_token.set(b, token);
    next_row.set(b, first(b) + accepted);
  }
};

struct Decision {
  bool accepted;
  int64_t token;
};

// A thread's share of the blocks of a row, and the wait for all others.
struct Team {
  int64_t rank = 0, size = 1;

  std::pair<int64_t, int64_t> share(int64_t blocks) const { return {blocks * rank / size, blocks * (rank + 1) / size}; }
  void wait() const {
    if (size > 1) {
#pragma omp barrier
    }
  }

  // The decision of the first thread, which the others wait for in `shared`.
  template <class Decide>
  Decision by_first(Decision& shared, const Decide& decide) const {
    if (rank == 0) shared = decide();
    wait();
    return shared;
  }
};

// Verifies every request of a batch by `rule`, which has
//   Scratch                                      memory of a thread, with reserve(blocks)
//   bool exists(int64_t state)
//   Decision decide(request, state, step, shared, own, team)   of one draft; `shared` is the memory of the first thread
// Requests are shared out among threads; where there are fewer of them than threads, the blocks of each row are.
template <class Rule>
void verify(const FusedBatch& batch, const Rule& rule) {
  using Scratch = typename Rule::Scratch;
  static thread_local Scratch own;
  const auto request = [&](int64_t b, Scratch& shared, Scratch& scratch, const Team& team) {
    const int64_t state = batch.state(b);
    if (!rule.exists(state)) return;
    for (int64_t step = 0;; ++step) {
      const Decision decision = rule.decide(b, state, step, shared, scratch, team);
      if (decision.accepted) continue;
      if (team.rank == 0) batch.write(b, step, decision.token);
      return;
    }
  };
#ifdef _OPENMP
  const int64_t threads = omp_get_max_threads(), rows = batch.cu_num_logits.get(batch.size());
  if (threads > 1 && rows * batch.vocabulary >= kParallelWork) {
    if (batch.size() >= threads) {
#pragma omp parallel
      {
        own.reserve(batch.blocks());
#pragma omp for schedule(dynamic)
        for (int64_t b = 0; b < batch.size(); ++b) request(b, own, own, {});
      }
      return;
    }
    own.reserve(batch.blocks());
    Scratch& shared = own;
#pragma omp parallel
    {
      const Team team{omp_get_thread_num(), omp_get_num_threads()};
      own.reserve(batch.blocks());
      for (int64_t b = 0; b < batch.size(); ++b) {
        request(b, shared, own, team);
        team.wait();
      }
    }
    return;
  }
#endif
  own.reserve(batch.blocks());
  for (int64_t b = 0; b < batch.size(); ++b) request(b, own, own, {});
}

}  // namespace verispec
