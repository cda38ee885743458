"""The simulated server while it serves: schedule, steps, HTTP and metrics."""
