"""HTTP as the simulated server speaks it: bytes and messages, connections and the listener."""
