"""Checkpoints: their files, and the one from which a run resumes."""
