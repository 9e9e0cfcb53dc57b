"""Blocks of KV slots, handed out to requests and taken back."""

from __future__ import annotations

from verispec.engines.protocol.generation import LoadOptions
from verispec.errors import VerispecError
from verispec.reference.models.kv_cache import NULL_BLOCK


def blocks_needed(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)


def pool_size(options: LoadOptions, max_model_len: int) -> int:
    """Return the number of blocks of a runner: as asked for, else enough for `max_num_seqs` of the longest sequences.

    Raises:
        VerispecError: V-GEN-OPTION if they hold no sequence of `max_model_len` tokens.
    """
    per_sequence = blocks_needed(max_model_len, options.block_size)
    wanted = options.num_blocks or 1 + per_sequence * options.max_num_seqs
    if wanted < 1 + per_sequence:
        raise VerispecError(
            "V-GEN-OPTION",
            f"num_blocks must be at least {1 + per_sequence}, got {wanted}",
            where="num_blocks",
            cause=f"one sequence of max_model_len = {max_model_len} needs {per_sequence} blocks of "
            f"{options.block_size} tokens, and one block holds the keys of padding",
            hint="give more blocks or a smaller max_model_len",
        )
    return wanted


class BlockPool:
    """The free blocks of a cache; every block but the null block is free at first."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))

    @property
    def free_blocks(self) -> tuple[int, ...]:
        """Ids of the blocks that no sequence has."""
        return tuple(self._free)

    @property
    def half_free(self) -> bool:
        """True while more than half of the blocks are free."""
        return 2 * len(self._free) > self.num_blocks

    def grow(self, blocks: list[int], num_tokens: int) -> bool:
        """Add blocks to `blocks` until they hold `num_tokens` tokens; False, and nothing taken, if too few are free."""
        missing = blocks_needed(num_tokens, self.block_size) - len(blocks)
        if missing <= 0:
            return True
        if missing > len(self._free):
            return False
        blocks.extend(self._free.pop() for _ in range(missing))
        return True

    def release(self, blocks: list[int]) -> None:
        """Take all of `blocks` back and empty the list."""
        self._free.extend(reversed(blocks))
        blocks.clear()
