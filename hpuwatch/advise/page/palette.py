"""The colours of the pictures by role, for light and for dark surroundings.

The pieces of memory have the colours of the status page: they can be told apart by people
who don't see all colours.  ``heat0`` to ``heat6`` are one hue, from little to much.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HEATS = 7

_MEMORY = {
    "weights": "#0072b2",
    "profile": "#56b4e9",
    "graphs": "#d55e00",
    "idle": "#f0c000",
    "dummy": "#6e7781",
    "kv": "#009e73",
    "held": "#cc79a7",
    "other": "#8c959f",
}
_LIGHT_HEAT = (
    "#dbeafe",
    "#b6d4f5",
    "#8abbe8",
    "#5a9dd6",
    "#317dbf",
    "#145c9e",
    "#0a3d70",
)

LIGHT: Mapping[str, str] = MappingProxyType(
    {
        **_MEMORY,
        "back": "#ffffff",
        "text": "#1b1f24",
        "soft": "#57606a",
        "line": "#d0d7de",
        "band": "#f3f5f8",
        "prompt": "#0072b2",
        "decode": "#b34e00",
        "multimodal": "#8a4a72",
        "expected": "#8abbe8",
        "inside": "#007a58",
        "outside": "#b42318",
        "limit": "#b42318",
        "dark": "#14181d",
        "bright": "#ffffff",
        **{f"heat{n}": colour for n, colour in enumerate(_LIGHT_HEAT)},
    }
)
DARK: Mapping[str, str] = MappingProxyType(
    {
        **LIGHT,
        "back": "#0d1117",
        "text": "#e6edf3",
        "soft": "#9aa4af",
        "line": "#3a424c",
        "band": "#161b22",
        "prompt": "#56b4e9",
        "decode": "#f08a3c",
        "multimodal": "#dd93bd",
        "expected": "#2f5f8f",
        "inside": "#35c298",
        "outside": "#ff7b72",
        "limit": "#ff7b72",
        **{f"heat{n}": colour for n, colour in enumerate(reversed(_LIGHT_HEAT))},
    }
)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG 2 defines it: 1 to 21."""
    dim, bright = sorted((_luminance(one), _luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


def ink_on(role: str) -> str:
    """Return the role of words on a piece of memory, whichever can be read better."""
    inks = ("dark", "bright")
    return max(inks, key=lambda ink: contrast(LIGHT[ink], LIGHT[role]))


def _luminance(colour: str) -> float:
    shares = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def variables(colours: Mapping[str, str]) -> str:
    """Return the colours as custom properties of a style sheet."""
    return " ".join(f"--{role}: {colour};" for role, colour in colours.items())


def rules() -> str:
    """Return what gives shapes the colour of their role."""
    fills = "\n".join(
        f".f-{role} {{ fill: var(--{role}); }} .s-{role} {{ stroke: var(--{role}); }}"
        for role in LIGHT
    )
    return f"{fills}\npolyline {{ fill: none; }}"


def own_style() -> str:
    """Return the style sheet of an SVG that stands alone."""
    face = "text { font-family: system-ui, sans-serif; }"
    return (
        f"\nsvg {{ color-scheme: light dark; background: var(--back); {variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {variables(DARK)} }} }}\n"
        f"{face}\n{rules()}\n"
    )
