"""A start of Gaudi's fork of vLLM (V0 engine): its order, its warm-up, its bucket words."""
