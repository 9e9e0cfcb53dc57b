"""Requirements of gumbel_sample (contract GUM).

The random samples are fixed, so that the Gumbel-max argmax of every row is known. Where rounding decides, GUM-8 defines
the correct tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from verispec.cases import case
from verispec.cases.request_state import Array
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import Compare, Failure, Kind, Mismatch, OpUnderTest, assert_same, sparse_zeros
from verispec.reference import contracts
from verispec.reference.oracle.gumbel_sample import scores
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._level_rows import level_rows
from verispec.suites.sampler._request_state import layouts, widths
from verispec.suites.sampler._sampling import gumbel_arguments as arguments
from verispec.suites.sampler._sampling import with_cache as cached

CONTRACT = contracts.load("gumbel_sample")
REACH = "every token that the GPU model runner samples or drafts"
DRAWS = ["target", "draft"]
BOUND = 2.0**-16
LARGE = 151_936
FULL_NAN = np.uint64(2**63 - 1).view(np.float64)
"""A NaN with every bit set but the sign: an addition that rounds it to fewer bits carries into the sign."""


def scores_of(t: int, inputs: Mapping[str, Any]) -> Array:
    """Return the oracle's scores of row `t`."""
    row: Array = scores(t, **{name: value for name, value in inputs.items() if name != "sampled"})
    return row


def bound(t: int, tokens: list[int], inputs: Mapping[str, Any]) -> float:
    """Return the maximum score difference of two tokens of row `t` for which both are correct."""
    temperature = float(inputs["temperature"][inputs["expanded_idx_mapping"][t]])
    if temperature == 0.0:
        return 0.0  # at temperature 0 the scores are the logits, without rounding
    logits = np.abs(inputs["logits"][t][tokens].astype(np.float64))
    return BOUND * float(max(1.0, *logits, *logits / temperature))


def within(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
    """Return a mask of wrong tokens; if rounding cannot separate two tokens, both are correct."""
    wrong: Array = expected != got
    for t in np.flatnonzero(wrong).tolist():
        if inputs["expanded_idx_mapping"][t] >= 0 and 0 <= got[t] < inputs["logits"].shape[1]:
            tokens = [int(expected[t]), int(got[t])]
            best, other = scores_of(t, inputs)[tokens]
            wrong[t] = not best - other < bound(t, tokens, inputs)
    return wrong


def check(op: OpUnderTest, values: dict[str, Any], **options: Any) -> Array:
    tokens: Array = op.check_outputs(values, compare={"sampled": within}, **options)["sampled"]
    return tokens


@case("GUM-1", draw=DRAWS, vocab=[1, 2, 37, 1025, 8193], reach=of_vocabulary)
def test_the_argmax_of_noisy_logits(op: OpUnderTest, seed: int, draw: str, vocab: int) -> None:
    values = arguments(seed, draw, vocab)
    values["temperature"][:] = 0.7
    check(op, values)


@case("GUM-1", draw=DRAWS, vocab=LARGE, size="large", reach=REACH)
def test_a_production_vocabulary(op: OpUnderTest, seed: int, draw: str) -> None:
    check(op, arguments(seed, draw, LARGE, rows=2, temperature=np.ones(5)))


@case("GUM-1", check="logits that carry the temperature", reach=REACH)
def test_temperature_is_not_applied_twice(op: OpUnderTest, seed: int) -> None:
    check(op, arguments(seed, apply_temperature=False))


@case("GUM-1", draw=DRAWS, temperature=["1e-6", "1e-4", "0.02"])
def test_low_temperatures_still_sample(op: OpUnderTest, seed: int, draw: str, temperature: str) -> None:
    """Logits as far apart as the temperature is, so that the noise decides."""
    heat = np.float32(temperature)
    values = arguments(seed, draw, rows=64, temperature=np.full(67, heat))
    values["logits"] *= heat
    check(op, values)


@case(
    "GUM-1",
    draw=DRAWS,
    part=["seed", "position"],
    check="past 32 bits",
    reach="seeds of 64 bits, and positions that count on",
)
def test_every_bit_of_a_seed_and_of_a_position_counts(op: OpUnderTest, seed: int, draw: str, part: str) -> None:
    """Uniform rows over many tokens: numbers that lose their upper half would give the same token."""
    values = arguments(seed, draw, 20_000, rows=8, temperature=np.ones(11))
    values["logits"][:] = 0.0
    values["pos"] %= 2**31
    name = "seed" if part == "seed" else "pos"
    shifted = values | {name: np.bitwise_xor(values[name], 2**32)}
    tokens, others = op.call_written(values)["sampled"], op.call_written(shifted)["sampled"]
    if np.array_equal(tokens, others):
        message = f"a {part} and another one that differs from it in bit 32 give the same tokens in all of 8 rows"
        raise Mismatch(Failure(Kind.RELATION, message, "sampled", wrong=len(tokens), total=len(tokens)))
    check(op, values)
    check(op, shifted)


@case("GUM-2", draw=DRAWS, vocab=[37, 8193], reach=REACH)
def test_greedy_rows(op: OpUnderTest, seed: int, draw: str, vocab: int) -> None:
    check(op, arguments(seed, draw, vocab, temperature=np.zeros(9)))


@case("GUM-3", vocab=[37, 1024, 8193], reach="logits of a bfloat16 head tie")
def test_the_lowest_of_equal_logits(op: OpUnderTest, seed: int, vocab: int) -> None:
    values = arguments(seed, vocab=vocab, temperature=np.zeros(9))
    values["logits"][:] = 0.0
    values["logits"][:, [vocab // 2, vocab - 1]] = 1.0
    check(op, values)


@case("GUM-4", check="a draft and a target token differ", reach="vllm#54282", quick=False)
def test_drafts_have_numbers_of_their_own(op: OpUnderTest, seed: int) -> None:
    """Uniform rows over many tokens: shared noise would give the same token."""
    values = arguments(seed, vocab=20_000, rows=8)
    values["logits"][:] = 0.0
    values["temperature"][:] = 1.0
    target = check(op, values)
    draft = check(op, values | {"is_drafting": True})
    later = check(op, values | {"is_drafting": True, "logits_cache_col": np.ones(8)})
    assert_same("at least 7 of 8 drafts differ from the target's tokens", True, int((target != draft).sum()) >= 7)
    assert_same("at least 7 of 8 drafts of another step differ", True, int((later != draft).sum()) >= 7)


@case("GUM-4", check="later steps", reach="chains of up to 32 drafts")
def test_each_later_step_has_its_own_numbers(op: OpUnderTest, seed: int) -> None:
    check(op, arguments(seed, "draft", rows=32, temperature=np.ones(35), logits_cache_col=np.arange(32)))


@case("GUM-4", check="steps past 8 and 16 bits")
def test_steps_of_many_bits_have_their_own_numbers(op: OpUnderTest, seed: int) -> None:
    """A counter holds 24 bits of a step; the rows are uniform, so that the noise alone decides."""
    steps = [255, 256, 257, 511, 512, 65_535, 65_536, 2**24 - 1]
    values = arguments(seed, "draft", 1030, rows=8, temperature=np.ones(11), logits_cache_col=np.array(steps))
    values["logits"][:] = 0.0
    check(op, values)


@case("GUM-4", draw="target", check="columns that are not 0")
def test_a_target_token_is_drawn_at_step_0(op: OpUnderTest, seed: int) -> None:
    """The column is the cache's alone; the noise of a token that is no draft has step 0 in every row."""
    values = arguments(seed, rows=32, temperature=np.ones(35))
    values["logits"] *= 0.25
    check(op, cached(values, seed) | {"logits_cache_col": 1 + np.arange(32) % 2})


@case("GUM-5", draw=DRAWS, reach="draft_sample_method=probabilistic")
def test_the_cache_holds_the_logits_before_temperature(op: OpUnderTest, seed: int, draw: str) -> None:
    check(op, cached(arguments(seed, draw), seed))


@case("GUM-5", dtype=["bfloat16", "float16"], reach="draft logits are kept in the model's dtype")
def test_a_narrow_cache(op: OpUnderTest, seed: int, dtype: str) -> None:
    check(op, cached(arguments(seed, "draft"), seed), dtypes={"logits": dtype, "logits_cache": dtype})


def differs(expected: Array, got: Array) -> Array:
    """Return a mask of different numbers; all NaN are equal."""
    wrong: Array = (expected != got) & ~(np.isnan(expected) & np.isnan(got))
    return wrong


@case("GUM-5", dtype=["bfloat16", "float16"], check="rounding decides", reach="a cache narrower than the logits")
def test_the_token_is_sampled_from_rounded_logits(op: OpUnderTest, seed: int, dtype: str) -> None:
    """Logits that the cache cannot tell apart give the token that equal logits give: the noise alone decides.

    Further logits lie at a quarter, a half or three quarters between two numbers of a cache. These are even or odd,
    normal, subnormal in float16, or the first and the last of their range. Some logits are NaN. The work is enough for
    several threads.
    """
    values = cached(arguments(seed, "draft", 1030, rows=64), seed)
    logits = 1000 + np.random.default_rng(seed).uniform(0.0, 0.2, values["logits"].shape)
    steps = [(-24, (0, 1, 520, 521, 1022, 1023)), (-10, (1024, 1025, 2047)), (-7, (128, 129, 255)), (5, (2046, 2047))]
    between = [-(n + part) * 2.0**step for step, lower in steps for n in lower for part in (0.25, 0.5, 0.75)]
    logits[:, :6] = np.resize([*between, -7e4], (64, 6))
    logits[::3, 7] = FULL_NAN
    values["logits"] = logits.astype(np.float32)

    def rounded(reals: Array) -> Array:
        narrow = torch.from_numpy(reals.astype(np.float32)).to(getattr(torch, dtype))
        return np.asarray(narrow.float().numpy())

    tokens = check(op, values | {"logits": rounded(values["logits"])}, dtypes={"logits_cache": dtype})

    def replaced(by: Callable[[Array], Array]) -> Compare:
        """Return the comparison with `by` of the oracle's output, which a failure then shows as the expected one."""

        def compare(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
            expected[...] = by(expected)
            return differs(expected, got)

        return compare

    compare = {"sampled": replaced(lambda _: tokens), "logits_cache": replaced(rounded)}
    op.check_outputs(values, compare=compare, dtypes={"logits_cache": dtype})


@case(
    "GUM-6",
    padding=["first", "last"],
    reach=lambda p: "captured graphs pad the batch of a drafter" if p["padding"] == "last" else None,
)
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str) -> None:
    values = cached(arguments(seed, "draft"), seed)
    values["expanded_idx_mapping"][[0, 1] if padding == "first" else [-1]] = -1
    check(op, values)


@case("GUM-7", rows=["some", "all", "masked"], vocab=[37, 8193])
def test_adversarial_rows(op: OpUnderTest, seed: int, rows: str, vocab: int) -> None:
    values = arguments(seed, vocab=vocab)
    if rows == "masked":
        values["logits"][:] = -np.inf
    else:
        values["logits"][:, :: 2 if rows == "some" else 1] = np.nan
    check(op, values)


@case("GUM-7", check=_ends.AT_ENDS, vocab=_ends.VOCABS, draw=DRAWS, reach=_ends.REACH)
def test_an_id_at_an_end_wins(op: OpUnderTest, seed: int, vocab: int, draw: str) -> None:
    """Some temperatures are 0, so that the token is an argmax without noise."""
    values = arguments(seed, draw, vocab, rows=max(len(_ends.end_ids(vocab)), 4))
    _ends.leave_ends(values["logits"])
    check(op, values)


@case("GUM-8", dtype=["bfloat16", "float16"], draw=DRAWS, reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str, draw: str) -> None:
    check(op, arguments(seed, draw), dtypes={"logits": dtype})


@case("GUM-8", temperature=["0.1", "1.0", "1.7"], draw=DRAWS, reach=REACH)
def test_close_scores(op: OpUnderTest, seed: int, temperature: str, draw: str) -> None:
    """Two tokens per row with scores slightly further apart than the bound, so that the better one must win."""
    values = arguments(seed, draw, rows=64, temperature=np.full(67, np.float32(temperature)))
    scale = float(values["temperature"][0])
    values["logits"][:] = 0.0
    for t in range(64):
        one, two = rivals = [3, 20 + t % 16]
        noise = scores_of(t, values)[rivals]
        values["logits"][t] = -1000.0
        values["logits"][t, one] = 5.0
        values["logits"][t, two] = 5.0 + (noise[0] - noise[1]) * scale
        gap = (1 - 2 * (t % 2)) * 1.5 * bound(t, rivals, values)
        values["logits"][t, two] += gap * scale
    check(op, values)


@case("GUM-8", draw=DRAWS, check="noise undone by logits", reach=REACH)
def test_the_precision_of_the_noise(op: OpUnderTest, seed: int, draw: str) -> None:
    """Logits that undo the noise, but for one token of each row: errors of any token's logarithms change a winner."""
    values = arguments(seed, draw, 1025, rows=64, temperature=np.ones(67))
    values["logits"] = level_rows(np.stack([scores_of(t, values) - values["logits"][t] for t in range(64)]))
    check(op, values)


@case("GUM-9", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    check(op, cached(arguments(seed, "draft"), seed), layouts=layouts(op, layout))


@case("GUM-9", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    values = cached(arguments(seed, "draft"), seed)
    values["pos"] %= 2**31
    check(op, values, dtypes=widths(op, ids))


@case("GUM-9", size="large", reach="7,068 states of two drafts each over a vocabulary of 151,936")
def test_rows_past_2_to_the_31(op: OpUnderTest, seed: int) -> None:
    """The first, the middle and the last row of logits, for two first states of the cache and the last one."""
    # As of a dense batch: the stride fits in 32 bits, and twice the stride does not.
    step = 2**30 // LARGE + 1
    values = arguments(seed, "draft", LARGE, rows=3, expanded_idx_mapping=np.arange(3), temperature=np.ones(3))
    values["seed"] = values["seed"][:3]
    near = cached(values, seed) | {"logits_cache_col": np.ones(3, np.int64)}
    expected = check(op, near)
    states = step + 1
    far = {name: np.repeat(values[name], [1, 1, states - 2]) for name in ("temperature", "seed")}
    far["expanded_idx_mapping"] = np.array([0, 1, states - 1])
    logits = sparse_zeros(2 * step + 1, LARGE, torch.float32, op.device)[::step]
    logits.copy_(torch.as_tensor(values["logits"]))
    cache = sparse_zeros(states * 2, LARGE, torch.float32, op.device).view(states, 2, LARGE)
    got = op.run(near | far, logits=logits, logits_cache=cache)["sampled"]
    assert_same("the tokens", np.zeros(3, bool), within(expected, got, values))
    assert_same("the cached logits", values["logits"], cache[[0, 1, states - 1], 1].cpu().numpy())


@case("GUM-1", mode="generated", draw=DRAWS, reach=REACH)
def test_generated_rows(op: OpUnderTest, seed: int, draw: str) -> None:
    @explore(structures(CONTRACT, layouts=False), 100, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        check(op, arguments(drawn.seed, draw, drawn.vocab, rows=len(drawn.counts)))


@case("GUM-9", mode="generated", draw=DRAWS)
def test_generated_dtypes_and_layouts(op: OpUnderTest, seed: int, draw: str) -> None:
    @explore(structures(CONTRACT, same=(("logits", "logits_cache"),)), 100, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        values = cached(arguments(drawn.seed, draw, drawn.vocab, rows=len(drawn.counts)), drawn.seed)
        values["pos"] %= 2**31
        check(op, values, dtypes=drawn.dtypes, layouts=drawn.layouts)


@case("GUM-10", relation="permuted", reach=REACH)
def test_a_row_alone_is_what_it_is_in_a_batch(op: OpUnderTest, seed: int) -> None:
    values = arguments(seed, rows=6)
    together = check(op, values)
    for row in range(6):
        one = {name: values[name][row : row + 1] for name in ("logits", "expanded_idx_mapping", "pos")}
        assert_same("the row's token", together[row : row + 1], check(op, values | one))
