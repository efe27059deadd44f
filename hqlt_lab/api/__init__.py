"""The lab from Python: what the command line does, without the printing.

done = lab.run("experiments/first_run.yaml")          trains what is missing, and reports
table = lab.results("experiments/first_run.yaml")     a tidy DataFrame, one line per cell
again = lab.evaluate("3f2c91", lesion="fw")           what a trained cell scores without its fast weights
found = lab.evaluate_tasks("3f2c91", ["general"])     what it answers to lm-eval's tasks
found = lab.generate("3f2c91", ["Once upon"])         the text that follows each prompt
lab.export("3f2c91", "exports/small")                 a folder that Hugging Face's transformers reads
model, task = lab.load("3f2c91")                      of a trained cell: its key, its folder or its MLflow run
"""

from hqlt_lab.api.comparing import compare
from hqlt_lab.api.harness import evaluate_tasks
from hqlt_lab.api.speaking import export, generate, load_export, text_model
from hqlt_lab.api.studies import forget, report, results, run, status, study_file, worker
from hqlt_lab.api.tracked import catch_up, links, tracker_of
from hqlt_lab.api.trained import evaluate, folder_of, load
from hqlt_lab.api.written import save_report
from hqlt_lab.experiment.experiment import load as load_experiment

__all__ = [
    "catch_up", "compare", "evaluate", "evaluate_tasks", "export", "folder_of", "forget", "generate", "links",
    "load", "load_experiment", "load_export", "report", "results", "run", "save_report", "status", "study_file",
    "text_model", "tracker_of", "worker",
]  # fmt: skip
