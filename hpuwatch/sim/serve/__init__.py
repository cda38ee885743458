"""The simulated server while it serves: schedule, steps, answers and metrics."""
