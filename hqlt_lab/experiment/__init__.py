"""Read, validate and expand experiment files: from YAML to a plan of training cells.

All mistakes of a file are reported together, before anything trains. Importing this package does not load torch.

load_experiment   load and validate an experiment file
arm_title         the title of an arm: its name and crossed levels
run_settings      dataclasses of the settings sections: train, trainer, agent, measure, prune, match
parse_axes        the axes of cross, one_at_a_time and tune: lists of values, and searched ranges
parse_seeds       seeds: their number, a list, or looks until comparisons are decided
apply_overrides   changes to the base by path: arms, axes, tuned values, --set
fill_defaults     fill in all defaults, and strip them again for cell keys
size_matching     make arms equal in parameters, state or FLOPs
lm_eval_section   the lm-eval tasks of the `evaluate` section
cell              the complete settings of one training run
expand_cells      expand arms x tuned points x seeds into cells with keys
cell_key          the key of a cell: a hash of all settings that can change the result
cell_filters      select cells by their labels (`--only`)
json_schema       JSON Schema of experiment files, for editors
yaml/             read YAML safely, with `extends`, `--set`, interpolation and line numbers
validate/         collect all issues: size limits, metric names, and each cell's model and task
"""
