"""Language models under lm-eval: our model as one of its models, its tasks from the hub, from files or our own.

answers = ask(text_model, asked)            ask.py: a task at a time, what is known is not asked again
HarnessModel(text_model, length=2048)       harness_model.py: any batch size answers what batch 1 answers
load_tasks("piqa", local, text_model)       tasks.py: by name, by file, or on local data
"""
