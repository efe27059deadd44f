"""The cells of a study: which ones there are, in which order they are trained, and how they are tuned."""
