"""Reinforcement learning: training a soft actor-critic agent in an environment."""
