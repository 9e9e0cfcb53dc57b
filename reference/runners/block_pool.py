"""Blocks of KV slots, handed out to requests and taken back."""

from __future__ import annotations

from verispec.reference.models.kv_cache import NULL_BLOCK


def blocks_needed(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)


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

    def grow(self, blocks: list[int], num_tokens: int) -> bool:
        """Add blocks to `blocks` until they hold `num_tokens` tokens; False, and nothing taken, if too few are free."""
        missing = blocks_needed(num_tokens, self.block_size) - len(blocks)
        if missing > len(self._free):
            return False
        blocks.extend(self._free.pop() for _ in range(missing))
        return True

    def release(self, blocks: list[int]) -> None:
        """Take all of `blocks` back and empty the list."""
        self._free.extend(reversed(blocks))
        blocks.clear()
