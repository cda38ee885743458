"""Faults on demand: scenarios, a control endpoint, and what each fault does."""
