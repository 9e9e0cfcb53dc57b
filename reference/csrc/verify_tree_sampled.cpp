// verify_tree_sampled: verify draft trees so that tokens follow the target's distribution. Clauses VTS-*.

#include <vector>

#include "ops.h"
#include "tree.h"

namespace verispec {
namespace {

// The weights of p and q at a node while its children are tried. Their sums are p_sum and q_sum: no division.
struct Weights {
  std::vector<double> p, q, left;
  double p_sum = 1, q_sum = 1;

  // Replace p by what the rejection of `token` leaves; return false and keep p if nothing is left.
  bool reject(int64_t token, bool is_drawn, bool without_replacement) {
    left.resize(p.size());
    for (size_t x = 0; x < p.size(); ++x) {
      left[x] = is_drawn ? std::max(q_sum * p[x] - p_sum * q[x], 0.0) : p[x];
    }
    if (!is_drawn) left[token] = 0;
    const double left_sum = sum_of(left);
    if (!(left_sum > 0)) return false;
    const double scale = power_of_two(left_sum);
    for (size_t x = 0; x < p.size(); ++x) p[x] = left[x] * scale;
    p_sum = left_sum * scale;
    if (is_drawn && without_replacement) {
      q[token] = 0;
      const double rest = sum_of(q), rest_scale = power_of_two(rest);
      for (double& weight : q) weight *= rest_scale;
      q_sum = rest * rest_scale;
    }
    return true;
  }
};

void verify_tree_sampled(const Tensor& predicts, const Tensor& accept_index, const Tensor& accept_token_num,
                         const Tensor& candidates, const Tensor& retrieve_index, const Tensor& retrieve_next_token,
                         const Tensor& retrieve_next_sibling, const Tensor& uniform_samples,
                         const Tensor& uniform_samples_for_final_sampling, const Tensor& target_probs,
                         const std::optional<Tensor>& draft_probs, bool without_replacement) {
  const Trees trees(predicts, accept_index, accept_token_num, candidates, retrieve_index, retrieve_next_token,
                    retrieve_next_sibling);
  const Reals uniform(uniform_samples), last(uniform_samples_for_final_sampling);
  const int64_t vocab = target_probs.shape[2];

#pragma omp parallel for schedule(static) if (trees.size() * vocab >= kParallelWork)
  for (int64_t b = 0; b < trees.size(); ++b) {
    Weights weights;
    trees.walk(b, [&](int64_t node, int64_t place, bool is_full) {
      weights.p_sum = weights.q_sum = 1;
      read_weights(target_probs, b, node, weights.p);
      if (draft_probs) read_weights(*draft_probs, b, node, weights.q);
      bool is_over = is_full;
      const auto accepts = [&](int64_t child, int64_t token) {
        if (is_over || token < 0 || token >= vocab) return false;
        const double q = draft_probs ? weights.q[token] : 1;
        if (!(q > 0)) return false;
        if (uniform.get(b, child) * (weights.p_sum * q) < weights.q_sum * weights.p[token]) return true;
        is_over = !weights.reject(token, draft_probs.has_value(), without_replacement);
        return false;
      };
      const int64_t child = is_over ? -1 : trees.find_child(b, node, accepts);
      trees.predicts.set(place, child < 0 ? draw(weights.p, last.get(b)) : trees.candidates.get(b, child));
      return child;
    });
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("verify_tree_sampled", &verify_tree_sampled, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
