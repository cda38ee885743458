"""A simulated vLLM server on Gaudi: its log lines, its memory, its time and its HTTP side.

Nothing that it prints or measures comes from a card.  It has line templates and a truth of
its own, so that the parser and the advice can be wrong about it; from ``gaudi`` it takes
only the bucket lists and the split of memory, which are arithmetic of the runtime itself.
"""

from __future__ import annotations
