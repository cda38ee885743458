"""What a model's weights take on one card: the checkpoint's share, and tables of positions.

The runtime makes a table of 2 bytes per position and number of a head.  Where positions are
scaled it makes a second one, of 4 bytes (V1: 8) and some buffers.  Both are whole on each
card.  The sums come out as public starts printed them.

INC quantises after loading.  V0 loads in full precision onto the card and gives half of it
back; the plugin loads into the host's memory, so that loading takes nothing and converting
everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.sim.config.options import Options
from hpuwatch.sim.models.model import Model
from hpuwatch.units import GIB

_TABLE_BYTES = 2
_V0_SECOND_TABLE_BYTES = 4
_V1_SECOND_TABLE_BYTES = 8
_V0_BUFFER_BYTES = int(0.0024 * GIB)
_V1_BUFFER_BYTES = int(0.004123 * GIB)
_INC = "inc"
_INC_SAVES = 0.5  # fp8 instead of bf16


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes on one card.

    Attributes:
        loaded_bytes: taken while the model is loaded.
        converted_bytes: what INC's conversion takes on top, negative where it gives back.
    """

    loaded_bytes: int
    converted_bytes: int = 0


def weights_of(options: Options) -> Weights:
    """Return what the weights of a server take on each card."""
    model, ranks, is_v0 = options.model, options.tensor_parallel, options.point.is_v0
    loaded, tables = model.weights_on_card(ranks), _tables(model, is_v0=is_v0)
    if options.quantization != _INC:
        return Weights(loaded + tables)
    # Embedding and output matrix stay as they are.
    words = 2 * model.vocabulary * model.hidden_size * model.dtype_bytes // ranks
    saved = int(_INC_SAVES * max(0, loaded - words))
    if is_v0:
        return Weights(loaded + tables, -saved)
    return Weights(0, loaded + tables - saved)


def _tables(model: Model, *, is_v0: bool) -> int:
    numbers = model.max_model_len * model.head_dim
    first = numbers * _TABLE_BYTES
    if not model.scaled_positions:
        return first
    if is_v0:
        return first + numbers * _V0_SECOND_TABLE_BYTES + _V0_BUFFER_BYTES
    return first + numbers * _V1_SECOND_TABLE_BYTES + _V1_BUFFER_BYTES
