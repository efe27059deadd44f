"""The files of a cell's run folder: their names, formats, readers and writers.  Nothing here imports torch.

cell_file         cell.json, the settings of the cell; training.lock, held while it trains
cell_state        the states that a cell of a study can be in
outcome           outcome.json, the final result
metrics           metrics.jsonl, the logged metrics
diagnostics       ops.json, determinism.json and probes.jsonl
evaluations       evaluations.json and long_context.json
lm_eval_results   harness.json, results of lm-eval tasks
code_hashes       code.json, hashes of the code that trained the cell
sync_state        mlflow.json, how much of the folder has been sent to MLflow
jsonl             reading and appending JSON lines
"""
