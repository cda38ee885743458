"""A model as its simulated server knows it: geometry, weights, and what running it takes.

Geometry is that of the published ``config.json``.  What running takes, the *laws*, can't be
computed: each preset's are set from public logs and figures, and a model that is given by
its ``config.json`` takes those of the nearest preset (``models.fromconfig``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.gaudi.modelshape import ModelShape


@dataclass(frozen=True, slots=True)
class GraphLaw:
    """Device memory that one captured graph keeps, on each card."""

    fixed_bytes: int
    token_bytes: int  # per batch * query (decode: per sequence)
    block_bytes: int  # per context block


@dataclass(frozen=True, slots=True)
class Vision:
    """What a model with images takes on the card before it serves.

    Attributes:
        profile_bytes: of the profile run, per token of its prompt.
        kept_bytes: what stays after the first image.
        pixel_bytes: for a moment, per pixel of an image.
    """

    profile_bytes: int
    kept_bytes: int
    pixel_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryLaw:
    """What running a model takes beside weights and cache.

    Attributes:
        graphs: what graphs keep, by phase, on each card.
        workspace_bytes: of the tensors of a running prefill, per token, all cards together;
            it is taken at the first large step and free memory shows it.
        activation_bytes: the same of what lives too shortly for any line to tell of it.
        vision: of a model that takes images.
    """

    graphs: Mapping[str, GraphLaw]
    workspace_bytes: int
    activation_bytes: int
    vision: Vision | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model; sizes are of the whole model unless said otherwise.

    Attributes:
        name: as published.
        kind: ``model_type`` of its configuration.
        shape: its geometry.
        checkpoint_bytes: what is loaded, without what a server makes of positions.
        parameters: all of them.
        active_parameters: those that one token passes; less than all with experts.
        experts: of one layer, 0 of a dense model.
        scaled_positions: whether its positions are scaled (Llama 3.1's way), which makes
            the runtime keep a second table of them.
        tensor_parallel: cards where no flag says otherwise.
    """

    name: str
    kind: str
    architecture: str
    shape: ModelShape
    checkpoint_bytes: int
    parameters: int
    active_parameters: int
    vocabulary: int
    shards: int
    law: MemoryLaw
    experts: int = 0
    scaled_positions: bool = False
    tensor_parallel: int = 1

    @property
    def layers(self) -> int:
        """All layers."""
        return self.shape.layers

    @property
    def attention_layers(self) -> int:
        """Layers that keep something for every token."""
        return self.shape.attention_layers

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.shape.heads

    @property
    def head_dim(self) -> int:
        """Numbers per head."""
        return self.shape.head_dim

    @property
    def hidden_size(self) -> int:
        """Numbers of a token between two layers."""
        return self.shape.hidden_size

    @property
    def max_model_len(self) -> int:
        """The longest sequence where no flag says otherwise, in tokens."""
        return self.shape.max_position

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one number as it is served."""
        return self.shape.dtype_bytes

    def weights_on_card(self, cards: int) -> int:
        """Return what one of so many cards loads of the checkpoint."""
        if self.shape.weights:
            return self.shape.weight_bytes(cards)
        return self.checkpoint_bytes // cards
