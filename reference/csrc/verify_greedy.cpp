// verify_greedy: from raw logits to the tokens of a greedy batch. Clauses VGR-*.

#include "fused.h"
#include "ops.h"

namespace verispec {
namespace {

struct Rule {
  struct Scratch {
    BlockStats stats[2];
    Row row;

    void reserve(int64_t blocks) {
      for (BlockStats& s : stats) s.reserve(blocks);
    }
  };

  const FusedBatch& batch;
  const Tensor& target_logits;

  bool exists(int64_t state) const { return state >= 0; }

  Decision decide(int64_t b, int64_t /*state*/, int64_t step, Scratch& shared, Scratch& own, const Team& team) const {
    const RowView view(target_logits, batch.first(b) + step, batch.vocabulary);
    BlockStats& stats = shared.stats[step % 2];
    const auto [begin, end] = team.share(view.blocks());
    stats.scan(view, begin, end, 0, false, false);
    team.wait();
    own.row.combine(view, stats, 0, false);
    const int64_t best = own.row.argmax();
    return {step < batch.drafts(b) && batch.draft(b, step) == best, best};
  }
};

void verify_greedy(const Tensor& sampled, const Tensor& num_sampled, const Tensor& num_rejected,
                   const Tensor& next_token, const Tensor& next_row, const Tensor& target_logits,
                   const Tensor& draft_sampled, const Tensor& cu_num_logits, const Tensor& idx_mapping) {
  const FusedBatch batch{Integers(sampled),       Integers(num_sampled),   Integers(num_rejected),
                         Integers(next_token),    Integers(next_row),      Integers(draft_sampled),
                         Integers(cu_num_logits), Integers(idx_mapping),   sampled.shape[1],
                         target_logits.shape[1]};
  verify(batch, Rule{batch, target_logits});
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("verify_greedy", &verify_greedy, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
