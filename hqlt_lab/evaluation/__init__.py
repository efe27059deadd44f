"""Trained models, beyond the test of their task: under lm-eval, and further than training went.

answers = ask(text_model, asked)            ask.py: a task at a time, what is known is not asked again
HarnessModel(text_model, length=2048)       harness_model.py: any batch size answers what batch 1 answers
load_tasks("piqa", local, text_model)       tasks.py: by name, by file, or on local data
Stretch(model, task, times=8).curves()      long_context.py: longer text, more pairs, larger distances;
                                            needle.py: a number that was told once; token_cost.py: what a token costs
"""
