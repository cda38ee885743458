"""The models and cards that can be simulated, and models made of a ``config.json``."""
