"""The KV cache of a simulated server: what a block takes, and what is really allocated.

Sizes follow from the model's geometry (``gaudi.kvcache``).  A hybrid model is special: the
engine counts one page for both kinds of layers, the plugin allocates a page of keys and
values *and* a state for each block.  Since 0.18.1 it lowers the budget first, so that both
fit; older releases allocate more than the budget, which may be the end of them.  With
``VLLM_COMPACT_GDN`` states are kept apart, a fixed number of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.gaudi import kvcache
from hpuwatch.gaudi.kvcache import KvLayout
from hpuwatch.gaudi.modellayers import GDN
from hpuwatch.gaudi.spans import Point, covers

_LOWERS_HYBRIDS = "plugin-0.18.1.."
_COUNTS_A_DUMMY = "plugin"


@dataclass(frozen=True, slots=True)
class HybridPages:
    """The pages of a hybrid model's block in one layer, and what the cache is lowered to.

    Attributes:
        attention_bytes: keys and values.
        state_bytes: a recurrent state.
        factor: the share of the budget that is left.
    """

    attention_bytes: int
    state_bytes: int
    factor: float

    @property
    def page_bytes(self) -> int:
        """The page that the engine counts for either."""
        return max(self.attention_bytes, self.state_bytes)

    @property
    def percent(self) -> float:
        """What is taken off the budget."""
        return 100 * (1 - self.factor)


class Cache:
    """The KV cache on each card.

    Attributes:
        block_bytes: what the engine divides the budget by.
        dummy_bytes: what the V1 engine sets aside for its block of padding.
        hybrid: where the budget is lowered before it is divided, else None.
        layer_page_bytes: keys and values of one block in one layer that attends.
    """

    def __init__(self, layout: KvLayout, point: Point, sequences: int) -> None:
        """Lay the cache out.

        Args:
            layout: model, cards and block.
            point: the release.
            sequences: how many run at a time; a compact cache keeps a state for each.

        Raises:
            ConfigError: heads can't be shared out among the cards.
        """
        self._sequences = sequences
        self._compact = layout.compact_gdn
        self.block_bytes = kvcache.kv_block_bytes(layout)
        counts_dummy = covers(_COUNTS_A_DUMMY, point)
        self.dummy_bytes = kvcache.dummy_block_bytes(layout) if counts_dummy else 0
        self._padding = 1 if counts_dummy else 0
        self._pages = _pages(layout)
        lowers = self._pages is not None and covers(_LOWERS_HYBRIDS, point)
        self.hybrid = self._pages if lowers and not self._compact else None
        self.layer_page_bytes = _layer_page(layout)

    def lowered(self, budget_bytes: int) -> int:
        """Return what is left of the budget that the line of the split tells."""
        return int(budget_bytes * self.hybrid.factor) if self.hybrid else budget_bytes

    def blocks_in(self, budget_bytes: int) -> int:
        """Return how many blocks the engine makes of a budget, none of a negative one."""
        return max(0, self.lowered(budget_bytes) // self.block_bytes)

    def allocated_bytes(self, blocks: int) -> int:
        """Return what so many usable blocks take on the card, the one of padding too."""
        count = blocks + self._padding
        if self._pages is None:
            return count * self.block_bytes
        layers = self.block_bytes // self._pages.page_bytes
        states = self._sequences if self._compact else count
        pages = count * self._pages.attention_bytes + states * self._pages.state_bytes
        return layers * pages


def _layer_page(layout: KvLayout) -> int:
    token = kvcache.kv_bytes_per_token(layout.shape, layout.tp, layout.kv_dtype_bytes)
    return token * layout.block_size // max(1, layout.shape.attention_layers)


def _pages(layout: KvLayout) -> HybridPages | None:
    shape = layout.shape
    if shape.recurrent is None or shape.attention_layers == 0:
        return None
    attention = _layer_page(layout)
    state = kvcache.state_bytes(shape.recurrent, layout.tp, shape.dtype_bytes)
    page = max(attention, state)
    both = page + state if shape.recurrent.kind != GDN else attention + state
    return HybridPages(attention, state, min(1.0, page / both))
