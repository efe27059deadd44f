"""Text generation with trained language models: prefill the prompt once, then decode at constant cost per token.

text_model           weights, tokenizer and separator of a trained cell or an export
sampling_options     sampling options
sampler              sample one token from each row of logits
prefill_decode       tokenize and prefill prompts, and compute one decoding step
detokenizer          decode tokens to text incrementally
batch_decoder        decode the rows of a batch, token by token
text_generation      generate a text for each prompt, or stream it
uncached_reference   reference implementation that reads the whole sequence again for every token
"""
