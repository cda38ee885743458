"""The multimodal warm-up: which images are tried, and what each leaves on the card.

A bucket is a number of patches.  The plugin tries each as a square and in four other aspect
ratios, after one large picture, and ``VLLM_MULTIMODAL_RESOLUTIONS`` names pictures instead;
the fork tries each bucket once, as one row of patches.  What an image needs is given back,
but not at once: so free memory goes down *and up* from step to step, unlike that of graphs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from hpuwatch.sim.models.model import Vision
from hpuwatch.sim.truth.dice import dice

_PATCH_BUCKETS = (196, 256, 441, 480, 576, 900, 1156)
_PATCH_PIXELS = 16
_V0_PATCH_BUCKETS = (1600, 3136, 4096, 6400, 7744, 9216, 12544)  # as documented
_V0_PATCH_PIXELS = 14
_SIDE_STEP = 32
_LARGE = (1280, 704)
_RATIOS = ((1, 1), (4, 3), (3, 4), (16, 9), (9, 16))
_LEAVES_NOTHING = 0.45
_LEFT_SHARE = (0.05, 0.55)  # of what the first image leaves for good
_LEAVES_MOST = 0.03
_LEFT_MOST = 1.08

Size = tuple[int, int]
"""Width and height in pixels."""


class Images:
    """The images of one server's warm-up.

    Attributes:
        buckets: numbers of patches.
        sizes: of each step; none for a model without images.
        kept_bytes: what the first image leaves for good.
    """

    def __init__(
        self,
        name: str,
        vision: Vision | None,
        buckets: Sequence[int] | None,
        resolutions: Sequence[str],
        *,
        is_v0: bool,
    ) -> None:
        """Take the server's name (seed, model and card) and what its variables name."""
        self._name = name
        self._pixel_bytes = vision.pixel_bytes if vision else 0
        self.kept_bytes = vision.kept_bytes if vision else 0
        own = _V0_PATCH_BUCKETS if is_v0 else _PATCH_BUCKETS
        self.buckets = own if buckets is None else tuple(buckets)
        self.sizes: tuple[Size, ...] = ()
        if vision:
            named = tuple(_named(text) for text in resolutions)
            of_buckets = _rows_of_patches if is_v0 else _of_buckets
            self.sizes = named or of_buckets(self.buckets)

    def left_bytes(self, index: int) -> int:
        """Return what a step has not given back yet when the next one begins."""
        drawn = dice(self._name, "image", index)
        chance = drawn.random()
        if chance < _LEAVES_NOTHING:
            return 0
        if chance > 1 - _LEAVES_MOST:
            return int(_LEFT_MOST * self.kept_bytes)
        return int(drawn.uniform(*_LEFT_SHARE) * self.kept_bytes)

    def activation_bytes(self, index: int) -> int:
        """Return what a step needs for a moment."""
        width, height = self.sizes[index]
        return width * height * self._pixel_bytes


def _named(text: str) -> Size:
    width, height = re.findall(r"\d+", text)[:2]
    return int(width), int(height)


def _rows_of_patches(buckets: Sequence[int]) -> tuple[Size, ...]:
    return tuple((each * _V0_PATCH_PIXELS, _V0_PATCH_PIXELS) for each in buckets)


def _of_buckets(buckets: Sequence[int]) -> tuple[Size, ...]:
    sizes = [_LARGE]
    for patches in buckets:
        height = math.isqrt(patches) * _PATCH_PIXELS
        for wide, high in _RATIOS:
            # Widths are rounded to whole steps, halves upwards.
            steps = math.floor(height * wide / high / _SIDE_STEP + 0.5)
            sizes.append((steps * _SIDE_STEP, height))
    return tuple(sizes)
