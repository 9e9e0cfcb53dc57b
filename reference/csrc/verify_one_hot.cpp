// verify_one_hot: from raw logits to tokens, with drafts that are certain. Clauses VOH-*.

#include "ops.h"
#include "survivors.h"

namespace verispec {
namespace {

struct Rule {
  struct Scratch {
    BlockStats stats[2];
    TargetRow target;
    Decision decision;

    void reserve(int64_t blocks) {
      for (BlockStats& s : stats) s.reserve(blocks);
    }
  };

  const FusedBatch& batch;
  const Tensor& target_logits;
  const Sampling& sampling;

  bool exists(int64_t state) const { return sampling.exists(state); }

  Decision decide(int64_t b, int64_t state, int64_t step, Scratch& shared, Scratch& own, const Team& team) const {
    const int64_t row = batch.first(b) + step, draft = batch.draft(b, step);
    const RowView view(target_logits, row, batch.vocabulary);
    const double temperature = sampling.temperature.get(state);
    const bool is_greedy = temperature == 0.0;
    const float scale = is_greedy ? 0.0f : scale_of(temperature);
    const int64_t k = is_greedy ? 0 : sampling.k(state, batch.vocabulary);
    const double p = is_greedy ? 1.0 : sampling.p(state);
    const bool with_mass = !is_greedy && k == 0, is_draft = draft >= 0 && draft < batch.vocabulary;
    const bool has_nucleus = with_mass && TargetRow::has_limits(k, p);
    const float bound = has_nucleus ? own.target.bound(view, scale, p, is_draft ? view.get(draft) : kNone) : kNone;

    BlockStats& stats = shared.stats[step % 2];
    const auto [begin, end] = team.share(view.blocks());
    stats.scan(view, begin, end, scale, with_mass, own.target.needs_maxima(k, p), bound);
    team.wait();
    own.target.row.combine(view, stats, scale, with_mass);
    if (is_greedy) {
      const int64_t best = own.target.row.argmax();
      return {step < batch.drafts(b) && draft == best, best};
    }
    const RowNumbers numbers = sampling.numbers(state, row, step);
    if (has_nucleus && is_draft && own.target.surely_accepts(draft, numbers.acceptance(), p)) return {true, draft};
    const auto settle = [&]() -> Decision {
      own.target.limit(k, p);
      if (is_draft && own.target.accepts(draft, numbers.acceptance())) return {true, draft};
      return {false, own.target.draw(numbers, is_draft ? draft : -1)};
    };
    return TargetRow::has_limits(k, p) ? team.by_first(shared.decision, settle) : settle();
  }
};

void verify_one_hot(const Tensor& sampled, const Tensor& num_sampled, const Tensor& num_rejected,
                    const Tensor& next_token, const Tensor& next_row, const Tensor& target_logits,
                    const Tensor& draft_sampled, const Tensor& cu_num_logits, const Tensor& idx_mapping,
                    const Tensor& pos, const Tensor& temperature, const Tensor& seed,
                    const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p) {
  const FusedBatch batch{Integers(sampled),       Integers(num_sampled),   Integers(num_rejected),
                         Integers(next_token),    Integers(next_row),      Integers(draft_sampled),
                         Integers(cu_num_logits), Integers(idx_mapping),   sampled.shape[1],
                         target_logits.shape[1]};
  const Sampling sampling(pos, temperature, seed, top_k, top_p);
  verify(batch, Rule{batch, target_logits, sampling});
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("verify_one_hot", &verify_one_hot, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
