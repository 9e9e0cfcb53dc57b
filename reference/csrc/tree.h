// Helpers shared by the kernels of draft trees: lists of children, walks, weights and draws.
//
// Links, places and tokens are compared with their bounds before they are used as indices. All arithmetic is in
// double, and sums follow the order of the vocabulary.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor.h"

namespace verispec {

// Row (i, j) of a tensor of rank 3 as weights, with 0 for NaN, infinite and negative probabilities.
inline void read_weights(const Tensor& tensor, int64_t i, int64_t j, std::vector<double>& row) {
  Tensor line;
  line.type = tensor.type;
  line.stride[0] = tensor.stride[2];
  const bool is_half = tensor.type == Type::bfloat16 || tensor.type == Type::float16;
  line.data = tensor.data + (i * tensor.stride[0] + j * tensor.stride[1]) * (is_half ? 2 : 4);
  row.resize(tensor.shape[2]);
  const Reals values(line);
  for (int64_t x = 0; x < tensor.shape[2]; ++x) {
    const double value = values.get(x);
    row[x] = std::isfinite(value) && value > 0 ? value : 0;
  }
}

inline double sum_of(const std::vector<double>& row) {
  double sum = 0;
  for (const double value : row) sum += value;
  return sum;
}

// The power of two by which a product lies in [1, 2), so that scaling rounds nothing.
inline double power_of_two(double number) {
  int exponent;
  std::frexp(number, &exponent);
  return std::ldexp(1.0, std::min(1 - exponent, 1000));
}

// The first token whose cumulative weight exceeds u of the whole; else the last with a weight, else V - 1.
inline int64_t draw(const std::vector<double>& row, double u) {
  const double bound = u * sum_of(row);
  double sum = 0;
  for (size_t x = 0; x < row.size(); ++x) {
    sum += row[x];
    if (sum > bound) return static_cast<int64_t>(x);
  }
  int64_t last = static_cast<int64_t>(row.size()) - 1;
  while (last > 0 && !(row[last] > 0)) --last;
  return row.empty() || row[last] > 0 ? last : static_cast<int64_t>(row.size()) - 1;
}

// The trees of a batch, and the outputs of their verification.
struct Trees {
  Integers predicts, accept_index, accept_token_num, candidates, places, next_token, next_sibling;
  int64_t nodes, columns;

  Trees(const Tensor& predicts, const Tensor& accept_index, const Tensor& accept_token_num, const Tensor& candidates,
        const Tensor& retrieve_index, const Tensor& retrieve_next_token, const Tensor& retrieve_next_sibling)
      : predicts(predicts),
        accept_index(accept_index),
        accept_token_num(accept_token_num),
        candidates(candidates),
        places(retrieve_index),
        next_token(retrieve_next_token),
        next_sibling(retrieve_next_sibling),
        nodes(retrieve_index.shape[1]),
        columns(accept_index.shape[1]) {}

  int64_t size() const { return nodes > 0 && columns > 0 ? places.size() : 0; }
  bool is_place(int64_t place) const { return place >= 0 && place < predicts.size(); }

  // The first child of a node that `accepts` takes, -1 if there is none.
  template <class Accepts>
  int64_t find_child(int64_t b, int64_t node, const Accepts& accepts) const {
    int64_t child = next_token.get(b, node);
    for (int64_t tried = 0; tried < nodes && child >= 0 && child < nodes; ++tried) {
      if (is_place(places.get(b, child)) && accepts(child, candidates.get(b, child))) return child;
      child = next_sibling.get(b, child);
    }
    return -1;
  }

  // Walk from the root of request b while `step(node, place, is_full)` returns a child; it stores the place's token.
  template <class Step>
  void walk(int64_t b, const Step& step) const {
    int64_t node = 0, count = 0, place = places.get(b, 0);
    accept_index.set(b, 0, place);
    while (is_place(place)) {
      node = step(node, place, count + 1 == columns);
      if (node < 0) break;
      place = places.get(b, node);
      accept_index.set(b, ++count, place);
    }
    accept_token_num.set(b, count);
  }
};

}  // namespace verispec
