"""What is true of the simulated machine: memory and time, and never printed as such."""
