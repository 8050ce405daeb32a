"""How things are measured: rounds in a shuffled order, memory, and what is written down of it."""
