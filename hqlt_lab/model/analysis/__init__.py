"""Analysis of models.

component_sizes     parameters, state and FLOPs of each component
model_flops         FLOPs of each component
state_size          bytes of the state of a layer
hbm_traffic         numbers that each component reads from and writes to the device's memory per token
roofline            upper bound on training throughput on a GPU
context_managers    temporary hooks, eager execution, evaluation mode
layer_probes        how much each memory contributes
attention_entropy   entropy of the softmax probabilities
lesions             replacing the output of one memory by zeros
backend_report      which backends compute the memories, and why
"""
