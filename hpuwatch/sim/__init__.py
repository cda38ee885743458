"""A simulated vLLM server on Gaudi: its log lines, its memory, its time and its HTTP side.

Nothing that it prints or measures comes from a card.  It has line templates, a reading of
settings and a truth of its own, so that the parser, the linter and the advice can be wrong
about it.  What it shares with them through ``gaudi`` is how releases are written, and what
the runtime itself computes from public figures: the bucket lists and how a request is looked
up in them, the split of memory, a model's geometry and weights, and the size of its KV cache.
So a mistake in those shows only beside real logs.  It takes none of the laws that
predictions rest on, and neither the table of knobs nor its checks; a contract of the build
sees to it.

From the bottom up: ``models``, and how it talks (``talk``); what was asked for (``config``);
what that takes and how long (``truth``); what one server shares (``world``); how it starts
(``start``, ``plugin``, ``fork``), how it serves (``serve``, ``http``), how it fails
(``faults``); and ``server``, its whole life.
"""

from __future__ import annotations
