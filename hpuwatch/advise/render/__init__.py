"""The report and its proposal for people, shells and machines, drawn from the document alone."""

from __future__ import annotations
