// build_draft_tree: links, positions and attention mask of selected draft nodes. Clauses BDT-*.

#include <vector>

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void build_draft_tree(const Tensor& parent_list, const Tensor& selected_index, const Tensor& verified_seq_len,
                      const Tensor& tree_mask, const Tensor& positions, const Tensor& retrieve_index,
                      const Tensor& retrieve_next_token, const Tensor& retrieve_next_sibling, int64_t topk,
                      int64_t depth, int64_t draft_token_num, int64_t tree_mask_mode) {
  const Integers beams(parent_list), selected(selected_index), lengths(verified_seq_len), where(positions);
  const Integers index(retrieve_index), next_token(retrieve_next_token), next_sibling(retrieve_next_sibling);
  const Flags mask(tree_mask);
  const int64_t requests = lengths.size(), nodes = draft_token_num;
  const auto size = static_cast<uint64_t>(tree_mask.size());

  std::vector<int64_t> begin(requests);
  int64_t end = 0;
  for (int64_t b = 0; b < requests; ++b) {
    begin[b] = end;
    end += nodes * (nodes + (tree_mask_mode == 0 ? lengths.get(b) : 0));
  }

  // The parent of node i, -1 if it is not selected.
  const auto parent_of = [&](int64_t b, int64_t i) {
    const int64_t candidate = selected.get(b, i - 1), entry = candidate / topk;
    int64_t parent = candidate < 0 || entry > 0 ? -1 : 0;
    if (candidate < 0 || entry == 0 || entry >= parent_list.shape[1]) return parent;
    const int64_t wanted = beams.get(b, entry);
    for (int64_t j = nodes - 1; j > 0; --j) {
      if (selected.get(b, j - 1) == wanted) parent = j;
    }
    return parent;
  };

#pragma omp parallel for schedule(static) if (requests * nodes * nodes >= kParallelWork)
  for (int64_t b = 0; b < requests; ++b) {
    const int64_t length = lengths.get(b), before = tree_mask_mode == 0 ? length : 0;
    std::vector<int64_t> parent(nodes, -1), first(nodes, -1);
    for (int64_t i = 1; i < nodes; ++i) parent[i] = parent_of(b, i);
    // From the last node back, so that the first child found last is the lowest.
    for (int64_t i = nodes - 1; i > 0; --i) {
      if (parent[i] < 0) continue;
      if (first[parent[i]] >= 0) next_sibling.set(b, i, first[parent[i]]);
      first[parent[i]] = i;
    }
    for (int64_t i = 0; i < nodes; ++i) {
      index.set(b, i, b * nodes + i);
      if (first[i] >= 0) next_token.set(b, i, first[i]);
      const int64_t row = begin[b] + i * (before + nodes) + before;
      const auto mark = [&](int64_t column, bool value) {
        // As unsigned numbers, places before the mask, of negative lengths, are past it.
        if (static_cast<uint64_t>(row + column) < size) mask.set(row + column, value);
      };
      for (int64_t column = 0; column < nodes; ++column) mark(column, column == 0);
      int64_t level = 0;
      for (int64_t node = i; node > 0 && level < depth; node = parent[node], ++level) mark(node, true);
      where.set(b * nodes + i, length + level);
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("build_draft_tree", &build_draft_tree, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
