"""Softmax: attend to each visible token by the product of query and key.

    kv_t = g_t * sum_s softmax_s(a_t q_t . k_s / sqrt(K)) v_s

    qk_norm       q and k are divided by their root mean square per head, and multiplied by a learned scale per channel
    gate          g_t = sigmoid(W x_t), one per head or per channel; none: 1
    logit_scale   log_length: a_t = log n_t, n_t the number of tokens that softmax sees at t; none: 1

Without options it has no parameters.  Normalized queries and keys bound the scores, which stabilizes training.  The
gate lets a head return nothing.  The scale keeps the distribution over many tokens as sharp as over few.

    attention: {name: softmax, qk_norm: true, gate: channel}

qk_norm: Henry et al. 2020, arXiv:2010.04245; with RMSNorm in OLMo 2 and Qwen3.  gate: Qiu et al. 2025,
arXiv:2505.06708.  log_length: Chiang, Cholak 2022, arXiv:2202.12172.
"""

from hqlt_lab.components.attention._options import SoftmaxWithOptions
from hqlt_lab.registry import register


@register("attention", "softmax")
class Softmax(SoftmaxWithOptions):
    pass
