"""Write the goldens anew: what we make of the logs of ``tests/golden``.

Each folder there holds a scenario:

- ``log``: synthetic, in the exact form of its release;
- ``facts.yaml``: what the log says, written by hand from the log;
- ``events.jsonl``, ``state.json``, ``metrics.prom``: what we make of it.

``tests/unit/test_golden.py`` compares all of them as values.  This program writes the last
three where they differ.  Read what it changed: a golden that nobody has read proves nothing.
It never writes facts, so a wrong figure doesn't become right.
"""

from __future__ import annotations

from pathlib import Path

from hpuwatch.testing.goldens import made

_FOLDER = Path(__file__).resolve().parent / "golden"


def main() -> None:
    """Write every file that is not up to date, and name it."""
    for log in sorted(_FOLDER.glob("*/log")):
        for name, text in made(log.read_bytes()).items():
            path = log.with_name(name)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                print(f"wrote {path.relative_to(_FOLDER.parent)}")


if __name__ == "__main__":
    main()
