"""Faults on demand: scenarios, and the moments at which they strike."""
