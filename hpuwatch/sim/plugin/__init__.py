"""A start of vllm-gaudi, the plugin (V1 engine): its order, its warm-up, its bucket words."""
