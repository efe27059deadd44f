"""Conformance checks of sequence layers that are not components of hqlt_lab: modules, models and functions.

hqlt check module package.module:Class --set width=64            on the command line
lab.check_module(Class, {"width": 64}).assert_passed()           in Python, and in your own tests

check_module            selects the lines, runs them on a target and collects the results
call_options            how a target is called: its input, and the names of its arguments
target                  finds a target by its name, and the adapter that can call it
adapter_interface       the interface of adapters: draw inputs, run a target, hand on a cache
layer_adapter           calls an nn.Module
causal_lm_adapter       calls a causal language model of transformers, built from its configuration
function_adapter        calls a function of queries, keys, values and gates
tensor_comparison       the largest deviation of two tensors, and the tolerances
causality_lines         later tokens change nothing before them
padding_lines           padding changes neither outputs nor the state
document_lines          documents that are packed into a row are independent
cache_lines             cached decoding equals one pass; the size of the state
row_and_dtype_lines     rows of a batch are independent; the dtype is kept
parameter_lines         gradients, and initial values in a backbone and in a file
implementation_lines    two implementations of one function are equal in values and gradients
"""
