"""Evaluation of trained models beyond their own test set: with lm-eval, and on contexts longer than in training.

lm_eval_runner           run lm-eval tasks on a cell or an exported model; known results are reused
run_lm_eval_task         run one task and convert lm-eval's results to metrics
lm_eval_model            a trained model as an lm-eval model, with results that do not depend on the batch size
lm_eval_tasks            load tasks by name, from a file, or on local data
lm_eval_task_variants    lm-eval tasks with the protocol of the paper, where lm-eval differs
loglikelihood            log-likelihoods of continuations
local_datasets           local files that replace datasets, and their hashes
long_context_evaluation  longer texts, more pairs and larger distances than in training
needle_in_haystack       needle-in-a-haystack questions
ruler_evaluation         scores on six tasks of RULER, by context length
ruler_samples            their questions
ruler_prompt_templates   their published prompts
ruler_words              words for keys and lists
decoding_cost            time and memory per decoded token
"""
