"""Who acts in a world: soft actor-critic for discrete actions, on the memory of any composition.

networks      what is seen to a vector, the memory, the policy, two critics
acting        step by step in many episodes at once, with the streaming state of the memory
episodes      what was lived, as arrays
replay        whole episodes in a file that only grows
learning      the losses
memory_check  the memory answers step by step as it does for whole episodes, or nothing is learned
film          an episode for people
"""
