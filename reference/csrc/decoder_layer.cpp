// A decoder layer of the Llama architecture (Touvron et al. 2023):
//
//     h = residual + out(attention(qkv(norm(x))))        x is the residual, unless the caller combined several inputs into x
//     y = h + down(silu(gate(norm(h))) * up(norm(h)))

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <memory>

#include "layers.h"
#include "ops.h"

namespace verispec {
namespace {

using Scratch = std::unique_ptr<float[]>;

Scratch make_scratch(int64_t rows, int64_t width) { return Scratch(new float[rows * width]); }

struct DecoderLayer {
  std::optional<RMSNorm> input_norm;  // none if the caller normalises
  Linear qkv;
  std::optional<RMSNorm> query_norm, key_norm;  // of each head, where the model has them
  PagedAttention attention;
  Linear out;
  RMSNorm output_norm;
  Linear gate_up, down;

  void operator()(float* y, const float* x, const float* residual, const PagedBatch& batch, float* cache) const {
    const int64_t rows = batch.rows();
    const Scratch normed = make_scratch(rows, std::max(qkv.inputs(), out.outputs()));
    const Scratch heads = make_scratch(rows, qkv.outputs());
    const Scratch mixed = make_scratch(rows, out.inputs());
    const Scratch gated = make_scratch(rows, down.inputs());

    if (input_norm) (*input_norm)(normed.get(), x, rows);
    qkv(heads.get(), input_norm ? normed.get() : x, rows);
    if (query_norm && key_norm) norm_heads(heads.get(), rows);
    attention(mixed.get(), heads.get(), batch, cache);
    out(y, mixed.get(), rows, residual);

    output_norm(normed.get(), y, rows);
    gate_up(gated.get(), normed.get(), rows);
    down(y, gated.get(), rows, y);
  }

 private:
  void norm_heads(float* heads, int64_t rows) const {
    for (float* row = heads; row < heads + rows * qkv.outputs(); row += qkv.outputs()) {
      float* keys = row + attention.num_heads * attention.head_dim;
      (*query_norm)(row, row, attention.num_heads);
      (*key_norm)(keys, keys, attention.num_kv_heads);
    }
  }
};

}  // namespace

const Registration registration([](nb::module_& m) {
  nb::class_<DecoderLayer>(m, "DecoderLayer")
      .def(
          "__init__",
          [](DecoderLayer* layer, std::optional<RMSNorm> input_norm, const Linear& qkv,
             std::optional<RMSNorm> query_norm, std::optional<RMSNorm> key_norm, int64_t num_heads,
             int64_t num_kv_heads, int64_t head_dim, double scale, uintptr_t cosine, uintptr_t sine,
             int64_t num_positions, const Linear& out, const RMSNorm& output_norm, const Linear& gate_up,
             const Linear& down) {
            const PagedAttention attention{num_heads,
                                           num_kv_heads,
                                           head_dim,
                                           static_cast<float>(scale),
                                           reinterpret_cast<const float*>(cosine),
                                           reinterpret_cast<const float*>(sine),
                                           num_positions};
            new (layer) DecoderLayer{input_norm, qkv, query_norm, key_norm, attention, out, output_norm, gate_up, down};
          },
          nb::arg("input_norm").none(), nb::arg("qkv"), nb::arg("query_norm").none(), nb::arg("key_norm").none(),
          nb::arg("num_heads"), nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("scale"), nb::arg("cosine"),
          nb::arg("sine"), nb::arg("num_positions"), nb::arg("out"), nb::arg("output_norm"), nb::arg("gate_up"),
          nb::arg("down"))
      .def(
          "__call__",
          [](const DecoderLayer& layer, uintptr_t y, uintptr_t x, uintptr_t residual, const PagedBatch& batch,
             uintptr_t cache) {
            layer(reinterpret_cast<float*>(y), reinterpret_cast<const float*>(x),
                  reinterpret_cast<const float*>(residual), batch, reinterpret_cast<float*>(cache));
          },
          nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
