// verify_tree_greedy: verify draft trees by the target's argmax. Clauses VTG-*.

#include "ops.h"
#include "tree.h"

namespace verispec {
namespace {

void verify_tree_greedy(const Tensor& predicts, const Tensor& accept_index, const Tensor& accept_token_num,
                        const Tensor& candidates, const Tensor& retrieve_index, const Tensor& retrieve_next_token,
                        const Tensor& retrieve_next_sibling, const Tensor& target_predict) {
  const Trees trees(predicts, accept_index, accept_token_num, candidates, retrieve_index, retrieve_next_token,
                    retrieve_next_sibling);
  const Integers argmax(target_predict);

#pragma omp parallel for schedule(static) if (trees.size() * trees.nodes >= kParallelWork)
  for (int64_t b = 0; b < trees.size(); ++b) {
    trees.walk(b, [&](int64_t node, int64_t place, bool is_full) {
      const int64_t wanted = argmax.get(place / trees.nodes, place % trees.nodes);
      trees.predicts.set(place, wanted);
      const auto accepts = [&](int64_t, int64_t token) { return token == wanted; };
      return is_full ? -1 : trees.find_child(b, node, accepts);
    });
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("verify_tree_greedy", &verify_tree_greedy, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
