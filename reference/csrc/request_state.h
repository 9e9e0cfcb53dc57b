// Helpers shared by the kernels of the slot-indexed family: rows of logits, normalisers, the Gumbel-max argmax.
//
// All arithmetic is in double. NaN counts as minus infinity, so that no maximum and no argmax depends on it.
// States, steps and tokens are compared with their bounds before they are used as indices. A missing state is
// treated like padding.

#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "philox.h"
#include "tensor.h"

namespace verispec {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// The first `size` logits of row i, or of row (i, j) of a tensor of rank 3, divided by `scale`.
inline void read_row(const Tensor& tensor, int64_t i, int64_t j, int64_t size, double scale, std::vector<double>& row) {
  Tensor line;
  line.type = tensor.type;
  const bool is_cube = j >= 0;
  line.stride[0] = tensor.stride[is_cube ? 2 : 1];
  const int64_t offset = i * tensor.stride[0] + (is_cube ? j * tensor.stride[1] : 0);
  const bool is_half = tensor.type == Type::bfloat16 || tensor.type == Type::float16;
  line.data = tensor.data + offset * (is_half ? 2 : 4);
  row.resize(size);
  const Reals logits(line);
  for (int64_t x = 0; x < size; ++x) {
    const double logit = logits.get(x);
    row[x] = std::isnan(logit) ? kLowest : logit / scale;
  }
}

inline int64_t argmax(const std::vector<double>& row) {
  int64_t best = 0;
  for (size_t x = 1; x < row.size(); ++x) {
    if (row[x] > row[best]) best = static_cast<int64_t>(x);
  }
  return best;
}

inline double logsumexp(const std::vector<double>& row) {
  const double top = row[argmax(row)];
  if (top == kLowest) return kLowest;
  double sum = 0;
  for (const double logit : row) sum += std::exp(logit - top);
  return top + std::log(sum);
}

// Return log p; minus infinity in a row without any probability.
inline double log_prob(double logit, double normaliser) { return normaliser == kLowest ? kLowest : logit - normaliser; }

inline int leading_zeros(uint32_t word) { return word ? __builtin_clz(word) : 32; }

// Return the argmax of weight + g over the tokens with weight, -1 if there are none. `bound` of a token is at least its
// `weight`. A token's weight and Gumbel sample are computed only if the token can win: u = (word + 0.5) / 2^32 is above
// 2^-(leading zeros + 1), and g = -log(-log(1 - u)) is at most -log(u).
template <typename Bound, typename Weight>
int64_t gumbel_argmax(int64_t size, const Numbers& numbers, Bound bound, Weight weight) {
  constexpr double kLog2 = 0.6931472;  // rounded up
  constexpr double kLargestGumbel = 33 * kLog2;
  int64_t winner = -1;
  double best = kLowest;
  for (int64_t block = 0; 4 * block < size; ++block) {
    const int64_t end = std::min<int64_t>(4 * block + 4, size);
    bool may_win = false;
    for (int64_t x = 4 * block; x < end; ++x) may_win |= bound(x) + kLargestGumbel > best;
    if (!may_win) continue;
    const Words words = numbers.words(block);
    for (int64_t x = 4 * block; x < end; ++x) {
      const uint32_t word = words[x % 4];
      if (!(bound(x) + (leading_zeros(word) + 1) * kLog2 > best)) continue;
      const double score = weight(x) + Numbers::to_gumbel(word);
      if (score > best) {
        best = score;
        winner = x;
      }
    }
  }
  return winner;
}

inline int64_t gumbel_argmax(const std::vector<double>& weights, const Numbers& numbers) {
  const auto weight = [&](int64_t x) { return weights[x]; };
  return gumbel_argmax(static_cast<int64_t>(weights.size()), numbers, weight, weight);
}

// The inputs of a batch and values derived from them.
struct Batch {
  const Tensor& target_logits;
  const std::optional<Tensor>& draft_logits;
  Integers draft_sampled, cu_num_logits, pos, idx_mapping, seed;
  Reals temperature;
  int64_t states;

  int64_t vocabulary() const {
    return draft_logits ? std::min(target_logits.shape[1], draft_logits->shape[2]) : target_logits.shape[1];
  }
  int64_t size() const { return idx_mapping.size(); }
  int64_t first(int64_t b) const { return cu_num_logits.get(b); }
  int64_t drafts(int64_t b) const { return cu_num_logits.get(b + 1) - first(b) - 1; }
  // Return the state of request b; -1 for padding and for a request without rows.
  int64_t state(int64_t b) const {
    const int64_t state = idx_mapping.get(b);
    return state >= 0 && state < states && drafts(b) >= 0 ? state : -1;
  }
  bool is_draft(int64_t draft, int64_t step) const {
    return draft >= 0 && draft < vocabulary() && (!draft_logits || step < draft_logits->shape[1]);
  }
  double uniform(int64_t state, int64_t row, int64_t step) const {
    return Numbers(seed.get(state), pos.get(row), step, Draw::accept).uniform();
  }

  // Store draft tokens while they are the argmax, else the argmax at the first rejection; return the number accepted.
  int64_t accept_while_argmax(int64_t b, const Integers& sampled, std::vector<double>& row) const {
    for (int64_t step = 0; step < drafts(b); ++step) {
      read_row(target_logits, first(b) + step, -1, vocabulary(), 1, row);
      const int64_t best = argmax(row);
      sampled.set(b, step, best);
      if (draft_sampled.get(first(b) + step + 1) != best) return step;
    }
    return drafts(b);
  }
};

}  // namespace verispec
