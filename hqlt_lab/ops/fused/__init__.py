"""Memory-saving operators that recompute in the backward pass: `cross_entropy` and `swiglu`."""
