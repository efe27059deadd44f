"""Python API: the functions behind the commands of `hqlt`, without printing.

result = lab.run("experiments/first_run.yaml")           train the missing cells and make the report
table = lab.results("experiments/first_run.yaml")        a tidy DataFrame, one row per cell
evaluation = lab.evaluate("3f2c91", lesion="fw")         scores of a trained cell without its fast weights
evaluation = lab.evaluate_tasks("3f2c91", ["general"])   its scores on lm-eval tasks
result = lab.profile(name="default", overrides=[])          a memory profile of a composition
texts = lab.generate("3f2c91", ["Once upon"])            continuations of prompts
lab.export("3f2c91", "exports/small")                    a folder that Hugging Face's transformers can load
model, task = lab.load("3f2c91")                         a trained cell, by its key, folder or MLflow run
"""

from hqlt_lab.api.compare_studies import compare
from hqlt_lab.api.language_models import export, generate, load_export, load_text_model
from hqlt_lab.api.report_files import save_report
from hqlt_lab.api.run_profile import compare_profiles, prepare_profile, profile, run_profile
from hqlt_lab.api.studies import find_study_file, forget_study_cells, join_study, make_report, read_status, results, run
from hqlt_lab.api.task_evaluation import evaluate_tasks
from hqlt_lab.api.tracking import list_study_links, resolve_tracking_store, sync_study
from hqlt_lab.api.trained_cells import evaluate, find_cell_folder, load
from hqlt_lab.experiment.load_experiment import load_experiment

__all__ = [
    "compare",
    "compare_profiles",
    "evaluate",
    "evaluate_tasks",
    "export",
    "find_cell_folder",
    "find_study_file",
    "forget_study_cells",
    "generate",
    "join_study",
    "list_study_links",
    "load",
    "load_experiment",
    "load_export",
    "load_text_model",
    "make_report",
    "prepare_profile",
    "profile",
    "read_status",
    "resolve_tracking_store",
    "results",
    "run",
    "run_profile",
    "save_report",
    "sync_study",
]  # fmt: skip
