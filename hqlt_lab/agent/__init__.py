"""Soft actor-critic agents for discrete actions, with any model composition as memory.

networks           observation encoder, memory, policy and two critics
action_selection   act step by step in parallel episodes, with the streaming state of the memory
rollout            collect episodes in parallel environments, as arrays
replay_buffer      complete episodes in an append-only file
sac                the losses
streaming_check    check that the memory gives the same outputs step by step as for whole episodes
episode_gif        an episode as a GIF
"""
