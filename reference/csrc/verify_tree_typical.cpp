// verify_tree_typical: verify draft trees by the target's probabilities and thresholds. Clauses VTT-*.

#include <vector>

#include "ops.h"
#include "tree.h"

namespace verispec {
namespace {

void verify_tree_typical(const Tensor& predicts, const Tensor& accept_index, const Tensor& accept_token_num,
                         const Tensor& candidates, const Tensor& retrieve_index, const Tensor& retrieve_next_token,
                         const Tensor& retrieve_next_sibling, const Tensor& uniform_samples,
                         const Tensor& uniform_samples_for_final_sampling, const Tensor& target_probs,
                         double threshold_single, double threshold_acc) {
  const Trees trees(predicts, accept_index, accept_token_num, candidates, retrieve_index, retrieve_next_token,
                    retrieve_next_sibling);
  const Reals uniform(uniform_samples), last(uniform_samples_for_final_sampling);
  const int64_t vocab = target_probs.shape[2];
  const double divisor = std::max(threshold_acc, 1e-9);

#pragma omp parallel for schedule(static) if (trees.size() * vocab >= kParallelWork)
  for (int64_t b = 0; b < trees.size(); ++b) {
    std::vector<double> p, left;
    trees.walk(b, [&](int64_t node, int64_t place, bool is_full) {
      read_weights(target_probs, b, node, p);
      left = p;
      const double u = uniform.get(b, node);
      double tried = 0;
      const auto accepts = [&](int64_t, int64_t token) {
        if (token < 0 || token >= vocab) return false;
        tried += p[token];
        if (p[token] > 0 && (u < tried / divisor || p[token] >= threshold_single)) return true;
        left[token] = 0;
        return false;
      };
      const int64_t child = is_full ? -1 : trees.find_child(b, node, accepts);
      trees.predicts.set(place, child < 0 ? draw(left, last.get(b)) : trees.candidates.get(b, child));
      return child;
    });
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("verify_tree_typical", &verify_tree_typical, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
