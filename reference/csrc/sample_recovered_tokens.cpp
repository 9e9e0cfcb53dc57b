// sample_recovered_tokens: sample the replacement of each draft token. Clauses SRT-*.
//
// One pass over the vocabulary, tile by tile. A loop that the compiler vectorises finds the tile's largest
// score; only if it beats all earlier tiles does a second loop find its place.

#include <limits>

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

constexpr int64_t kTile = 1024;

// Return elements [begin, begin + count) of a row: the row itself if they are of type T and adjacent, else
// a widened copy in `buffer`.
template <class T>
const T* load(const Tensor& tensor, int64_t row, int64_t begin, int64_t count, T* buffer) {
  constexpr Type own = sizeof(T) == 8 ? Type::float64 : Type::float32;
  if (tensor.type == own && tensor.stride[1] == 1) return tensor.at<T>(row, begin);
  const Reals source(tensor);
  for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<T>(source.get(row, begin + i));
  return buffer;
}

// Return mass times noise in the noise's precision, and a score below every real one without mass. The
// test is false for NaN, so that NaN counts as no mass.
template <class Noise>
Noise score(float mass, Noise noise) {
  const Noise product = static_cast<Noise>(mass) * noise;
  return mass > 0.0f ? product : -std::numeric_limits<Noise>::infinity();
}

template <class Noise>
struct Best {
  Noise score = -std::numeric_limits<Noise>::infinity();
  int64_t token = -1;  // no token has mass
};

// Update `best` with the tokens of [begin, end) in ascending order; the first of equal scores stays.
// The mass of a token is p - q, or p without `draft`.
template <class Noise>
void search(const Tensor& target, const Tensor* draft, const Tensor& noise, int64_t row, int64_t request, int64_t begin,
            int64_t end, Best<Noise>& best) {
  float p_buffer[kTile], q_buffer[kTile], mass[kTile];
  Noise noise_buffer[kTile], scores[kTile];
  for (int64_t start = begin; start < end; start += kTile) {
    const int64_t count = std::min(kTile, end - start);
    const float* p = load(target, row, start, count, p_buffer);
    const Noise* inverse = load(noise, request, start, count, noise_buffer);
    if (draft) {
      const float* q = load(*draft, row, start, count, q_buffer);
      for (int64_t i = 0; i < count; ++i) mass[i] = p[i] - q[i];
      p = mass;
    }

    for (int64_t i = 0; i < count; ++i) scores[i] = score(p[i], inverse[i]);
    Noise largest = -std::numeric_limits<Noise>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
    if (largest > best.score) {
      int64_t first = 0;
      while (scores[first] != largest) ++first;
      best = {largest, start + first};
    }
  }
}

template <class Noise>
int64_t recover(const Tensor& target, const Tensor* draft, const Tensor& noise, int64_t row, int64_t request,
                int64_t token, int64_t vocab_size) {
  Best<Noise> best;
  if (draft) {
    search(target, draft, noise, row, request, 0, vocab_size, best);
  } else {
    // Skip the draft token; a padding token skips nothing.
    const int64_t without = token >= 0 && token < vocab_size ? token : vocab_size;
    search<Noise>(target, nullptr, noise, row, request, 0, without, best);
    search<Noise>(target, nullptr, noise, row, request, without + 1, vocab_size, best);
  }
  if (best.token < 0) search<Noise>(target, nullptr, noise, row, request, 0, vocab_size, best);
  return std::max<int64_t>(best.token, 0);
}

void sample_recovered_tokens(const Tensor& output_token_ids, const Tensor& cu_num_draft_tokens,
                             const Tensor& draft_token_ids, const std::optional<Tensor>& draft_probs,
                             const Tensor& target_probs, const Tensor& inv_q, int64_t vocab_size, bool no_draft_probs,
                             bool /*USE_FP64_GUMBEL: the noise's own type says it*/) {
  const Integers output(output_token_ids), drafts(draft_token_ids);
  const Segments tokens(cu_num_draft_tokens, drafts.size());
  const Tensor* draft = no_draft_probs ? nullptr : &*draft_probs;
  const auto one = inv_q.type == Type::float64 ? &recover<double> : &recover<float>;

#pragma omp parallel for schedule(dynamic) if (drafts.size() * vocab_size >= kParallelWork)
  for (int64_t b = 0; b < tokens.size(); ++b) {
    const int64_t end = tokens.end(b);
    for (int64_t row = tokens.begin(b); row < end; ++row) {
      output.set(row, one(target_probs, draft, inv_q, row, b, drafts.get(row), vocab_size));
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("sample_recovered_tokens", &sample_recovered_tokens, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
