"""What the simulated server prints: lines of each release, headers, prefixes, bars."""
