"""Validation of options that say how much is drafted, and at which rates synthetic verification accepts."""

from __future__ import annotations

from typing import Any

from verispec.engines.protocol.values import require, whole, within

AUTO = "auto"
"""Value of `num_speculative_tokens` with which the engine chooses K."""

MOST_CHOSEN = 8
"""Maximum K that the engine chooses."""


def check_depth(options: Any) -> None:
    """Raise V-GEN-OPTION unless K is a number, or chosen by the engine where nothing else depends on a number."""
    name, value = "num_speculative_tokens", options.num_speculative_tokens
    if value != AUTO:
        require(whole(value, 1), name, f"an integer of at least 1 or {AUTO}", value)
        return
    for clash, other in (
        (options.method == "none", "method none"),
        (options.num_speculative_tokens_per_batch_size is not None, "num_speculative_tokens_per_batch_size"),
        (options.speculative_token_tree is not None, "speculative_token_tree"),
        (options.rejection_sample_method == "synthetic", "rejection_sample_method synthetic"),
    ):
        require(not clash, name, f"an integer with {other}", value)


def check_schedule(options: Any) -> None:
    """Raise V-GEN-OPTION unless the ranges follow one another from 1, each with a K that drafting allows."""
    schedule, most = options.num_speculative_tokens_per_batch_size, options.max_drafts
    if schedule is not None:
        known = [
            entry
            for entry in (schedule if isinstance(schedule, (tuple, list)) else ())
            if isinstance(entry, (tuple, list)) and len(entry) == 3 and all(whole(number, 0) for number in entry)
        ]
        starts = [1, *(last + 1 for _, last, _ in known)]
        fits = [first == start <= last and k <= most for (first, last, k), start in zip(known, starts, strict=False)]
        wanted = f"ranges (first, last, K) one after another from 1, each K from 0 to {most}, and None with method none"
        good = options.method != "none" and bool(fits) and all(fits) and len(schedule) == len(fits)
        require(good, "num_speculative_tokens_per_batch_size", wanted, schedule)


def check_rates(options: Any) -> None:
    """Raise V-GEN-OPTION unless synthetic verification has rates or a length, and other methods have neither."""
    rates, length = options.synthetic_acceptance_rates, options.synthetic_acceptance_length
    maximum = options.max_drafts
    both = "synthetic_acceptance_rates", "synthetic_acceptance_length"
    if options.rejection_sample_method != "synthetic":
        for name in both:
            wanted = f"None with rejection_sample_method {options.rejection_sample_method}"
            require(getattr(options, name) is None, name, wanted, getattr(options, name))
        return
    require((rates is None) != (length is None), both[0], f"given without {both[1]}, or the other", rates)
    if rates is not None:
        numbers = all(within(rate, 0, 1) for rate in rates)
        good = len(rates) == maximum and numbers and list(rates) == sorted(rates)[::-1]
        require(good, both[0], f"{maximum} numbers from 0 to 1, none above the one before it", rates)
    if length is not None:
        require(within(length, 1, maximum + 1), both[1], f"a number from 1 to {maximum + 1}", length)
