"""Studies: plan the cells of an experiment, train them with several workers, and record every attempt in Optuna.

run_study                run a study, from opening the ledger to the last cell
coordinator              main loop: claim cells, dispatch them to an executor, handle events, finish attempts
plan                     which cells there are and in which order; search space; selected point; cached plan
ledger                   every attempt at every cell, in a journal file or in PostgreSQL; the state of each cell
executors                how cells are trained: local processes, Ray tasks, SLURM jobs
launchers                registered components that build an executor from the `launcher` settings
peer_monitor             monitors the other coordinators of a shared study
notebook_components      files of the components that were defined in a notebook
experiment_file_record   which experiment file a study belongs to
study_callback           hooks that receive the progress of a study
progress_tracker         callback that keeps the progress of a study for a display
suggest_retry_filters    `--only` filters that select the cells that failed or diverged
study_snapshot           a study read from its folder alone, without its experiment file
eta                      estimate of the remaining time
evaluate_cells           evaluate trained cells again
lm_eval_cells            run lm-eval tasks on trained cells
"""
