// verify_draft_logits: from raw logits of target and draft to tokens. Clauses VDL-*.
//
// The residual norm(max(p - q, 0)) is drawn from by rejection: a candidate passes with probability 1 - q/p. A
// candidate costs one block of the row. A draft is rejected as often as a candidate is, so that a verified position
// takes one candidate on average, whatever p and q are; only where many fail is the residual summed.

#include "ops.h"
#include "survivors.h"

namespace verispec {
namespace {

struct Rule {
  struct Scratch {
    BlockStats target_stats[2], draft_stats[2];
    TargetRow target;
    Row draft;
    Decision decision;

    void reserve(int64_t blocks) {
      for (BlockStats& s : target_stats) s.reserve(blocks);
      for (BlockStats& s : draft_stats) s.reserve(blocks);
    }
  };

  const FusedBatch& batch;
  const Tensor& target_logits;
  const Tensor& draft_logits;
  const Sampling& sampling;
  const std::optional<Tensor>& draft_normaliser;

  bool exists(int64_t state) const { return sampling.exists(state); }

  Decision decide(int64_t b, int64_t state, int64_t step, Scratch& shared, Scratch& own, const Team& team) const {
    const int64_t row = batch.first(b) + step, draft = batch.draft(b, step);
    const RowView view(target_logits, row, batch.vocabulary);
    const double temperature = sampling.temperature.get(state);
    const bool is_greedy = temperature == 0.0;
    const float scale = is_greedy ? 0.0f : scale_of(temperature);
    const int64_t k = is_greedy ? 0 : sampling.k(state, batch.vocabulary);
    const double p = is_greedy ? 1.0 : sampling.p(state);
    const bool with_mass = !is_greedy && k == 0;
    const bool is_draft = !is_greedy && draft >= 0 && draft < batch.vocabulary && step < draft_logits.shape[1];
    const bool has_nucleus = with_mass && TargetRow::has_limits(k, p);
    const float bound = has_nucleus ? own.target.bound(view, scale, p, is_draft ? view.get(draft) : kNone) : kNone;
    const RowView draft_view = is_draft ? RowView(draft_logits, state, step, batch.vocabulary) : RowView();

    BlockStats &stats = shared.target_stats[step % 2], &draft_stats = shared.draft_stats[step % 2];
    const auto [begin, end] = team.share(view.blocks());
    if (is_draft && !draft_normaliser) draft_stats.scan(draft_view, begin, end, scale, true, false);
    // Last, so that the caches hold it: the limits read parts of it again.
    stats.scan(view, begin, end, scale, with_mass, own.target.needs_maxima(k, p), bound);
    team.wait();

    TargetRow& target = own.target;
    target.row.combine(view, stats, scale, with_mass);
    if (is_greedy) {
      const int64_t best = target.row.argmax();
      return {step < batch.drafts(b) && draft == best, best};
    }
    const RowNumbers numbers = sampling.numbers(state, row, step);
    if (is_draft && !draft_normaliser) own.draft.combine(draft_view, draft_stats, scale, true);
    const auto q = [&](int64_t token) {
      const float logit = draft_view.get(token);
      if (draft_normaliser) return given_probability(logit * static_cast<double>(scale), state, step);
      return own.draft.total() > 0 ? own.draft.weight(logit) / own.draft.total() : 0.0;
    };
    const double share = is_draft ? numbers.acceptance() * q(draft) : 0.0;
    if (has_nucleus && is_draft && target.surely_accepts(draft, share, p)) return {true, draft};
    const auto settle = [&]() -> Decision {
      target.limit(k, p);
      if (!is_draft || target.row.top() == kNone) return {false, target.draw(numbers, -1)};
      if (target.accepts(draft, share)) return {true, draft};
      return {false, residual(target, q, numbers)};
    };
    return TargetRow::has_limits(k, p) ? team.by_first(shared.decision, settle) : settle();
  }

  // From log2 of a weight and the normaliser that the drafter gave; 0 for a row without any probability.
  double given_probability(double log, int64_t state, int64_t step) const {
    const float normaliser = *draft_normaliser->at<float>(state, step);
    return normaliser > kNone && log > kNone ? std::exp2(log - normaliser * 1.4426950408889634) : 0.0;
  }

  template <class Q>
  static int64_t residual(TargetRow& target, const Q& q, const RowNumbers& numbers) {
    double rest = 0;
    for (int64_t t = 0; t < kTrials; ++t) {
      const auto [u, v] = numbers.trial(t);
      const int64_t candidate = target.candidate(u, -1, rest);
      // v p < p - q, solved for p
      if (target.accepts(candidate, q(candidate) / (1 - v))) return candidate;
    }
    const auto [u, v] = numbers.trial(kTrials);
    const double total = target.total();
    double mass = 0;
    target.each([&](int64_t token, double weight) {
      mass += std::max(weight / total - q(token), 0.0);
      return false;
    });
    if (!(mass > 0)) return target.draw_kept(u, -1, rest);
    double before = 0;
    int64_t drawn = 0;
    target.each([&](int64_t token, double weight) {
      const double left = weight / total - q(token);
      if (!(left > 0)) return false;
      drawn = token;
      return (before += left) > u * mass;
    });
    return drawn;
  }
};

void verify_draft_logits(const Tensor& sampled, const Tensor& num_sampled, const Tensor& num_rejected,
                         const Tensor& next_token, const Tensor& next_row, const Tensor& target_logits,
                         const Tensor& draft_logits, const Tensor& draft_sampled, const Tensor& cu_num_logits,
                         const Tensor& idx_mapping, const Tensor& pos, const Tensor& temperature, const Tensor& seed,
                         const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                         const std::optional<Tensor>& draft_normaliser) {
  const FusedBatch batch{Integers(sampled),       Integers(num_sampled),   Integers(num_rejected),
                         Integers(next_token),    Integers(next_row),      Integers(draft_sampled),
                         Integers(cu_num_logits), Integers(idx_mapping),   sampled.shape[1],
                         std::min(target_logits.shape[1], draft_logits.shape[2])};
  const Sampling sampling(pos, temperature, seed, top_k, top_p);
  verify(batch, Rule{batch, target_logits, draft_logits, sampling, draft_normaliser});
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("verify_draft_logits", &verify_draft_logits, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
