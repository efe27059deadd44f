"""Text from trained models: a prompt is read once, then every token costs the same, however long the text is.

model = text_model_in(folder)                                   text_model.py
generate(model, ["Once upon", "The key"], Sampling(tokens=50))  generate.py, sampling.py
recomputed(model, prompt, Sampling(tokens=50))                  the slow truth: the whole prefix at every step
"""
