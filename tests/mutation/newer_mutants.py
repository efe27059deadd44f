"""Planted bugs in channel gates, attention components, sinks, meta tokens, layer patterns, training sets, verdicts."""

from tests.mutation._mutant import Mutant

DIFFERENCES = "tests/report/test_differences.py"
LOOKS = ("tests/report/test_look_levels.py", "tests/study/test_looks.py")
CHANNEL_SCAN, UPDATE_RULES = "tests/ops/test_channel_gate_scan.py", "tests/components/test_update_rules.py"
SINKS = "tests/model/test_sinks_and_meta_tokens.py"
MEMORY_TRAINING, TRAINING_SETS = "tests/train/test_per_memory_training.py", "tests/tasks/test_training_sets.py"
PROTOCOL_TASKS, TASK_LABELS = "tests/tasks/test_protocol_tasks.py", "tests/tasks/test_reference_labels.py"

IN_NEWER_PARTS = [
    Mutant(
        "a chunk with channels carries the state into another document",
        "hqlt_lab/ops/scan/channel_gate_chunk.py",
        "            self.state_to_end = self.state_to_end * documents.state_remains\n",
        "",
        (CHANNEL_SCAN,),
    ),
    Mutant(
        "held queries of a block border belong to the next block",
        "hqlt_lab/ops/scan/channel_gate_chunk.py",
        "block = (seen_writes - 1).clamp(min=0) // self.block_size",
        "block = seen_writes // self.block_size",
        (CHANNEL_SCAN,),
    ),
    Mutant(
        "keeps below the limit get the gradient of those above",
        "hqlt_lab/ops/scan/channel_gate_chunk.py",
        "if log_keep.amin() < self.chunk.min_log_keep:",
        "if False:",
        (CHANNEL_SCAN,),
    ),
    Mutant(
        "undecayed pairs of early lookups are left in the identity",
        "hqlt_lab/ops/scan/channel_gate_chunk.py",
        "add_rows(lookup_row[1:], position[1:] - 1, 0)",
        "pass",
        (CHANNEL_SCAN,),
    ),
    Mutant(
        "rwkv7 writes the key without its mix",
        "components/update_rules/rwkv7.py",
        "k * (1 + (removal - 1) * mix[:, None])",
        "k * removal",
        (UPDATE_RULES,),
    ),
    Mutant(
        "kda accepts keys of any length",
        "components/update_rules/kda.py",
        "    needs_unit_keys = True\n",
        "",
        (UPDATE_RULES, "tests/components/test_formulas.py"),
    ),
    Mutant(
        "comba ignores its initial query correction",
        "components/update_rules/comba.py",
        "self.query_weight.fill_(self.query_correction)",
        "self.query_weight.fill_(1.0)",
        (UPDATE_RULES,),
    ),
    Mutant(
        "sinks do not count as visible tokens",
        "hqlt_lab/ops/memory_schedule.py",
        "return t + 1 - first + first.clamp(max=self.sinks)",
        "return t + 1 - first",
        ("tests/ops/test_schedule.py", "tests/components/test_attention.py"),
    ),
    Mutant(
        "the first sink of a call is taken from the state",
        "hqlt_lab/model/softmax_memory.py",
        "is_missing, is_past = slot >= document_length, index < 0",
        "is_missing, is_past = slot >= document_length, index <= 0",
        (SINKS,),
    ),
    Mutant(
        "meta tokens inside of a row are reversed",
        "hqlt_lab/model/meta_tokens.py",
        "meta.to(x.dtype)[number.clamp(min=0)]",
        "meta.to(x.dtype).flip(0)[number.clamp(min=0)]",
        (SINKS,),
    ),
    Mutant(
        "a layer may be set twice, counted from both ends",
        "hqlt_lab/model/layer_pattern.py",
        "values.setdefault(number % layers, value) != value",
        "values.setdefault(number, value) != value",
        ("tests/model/test_layer_patterns.py",),
    ),
    Mutant(
        "evaluation keeps the drawn window",
        "hqlt_lab/train/per_memory_training.py",
        "    if train.window_range is not None:\n        set_windows(model, None)\n",
        "",
        (MEMORY_TRAINING,),
    ),
    Mutant(
        "a memory starts one step late",
        "hqlt_lab/train/per_memory_training.py",
        "if step < train.memory(name).start_step",
        "if step <= train.memory(name).start_step",
        (MEMORY_TRAINING,),
    ),
    Mutant(
        "segments share the order of their rows",
        "hqlt_lab/tasks/_row_order.py",
        'random_order(f"{self.stream}/rows_{segment}", epoch, rows)',
        'random_order(f"{self.stream}/rows", epoch, rows)',
        (TRAINING_SETS,),
    ),
    Mutant(
        "the largest window is never drawn",
        "hqlt_lab/train/per_memory_training.py",
        "number % (window_range.high - window_range.low + 1)",
        "number % (window_range.high - window_range.low)",
        (MEMORY_TRAINING,),
    ),
    Mutant(
        "the token in front of a row is scored",
        "hqlt_lab/tasks/state_tracking/word_problem.py",
        'if self.bos and split == "train" and self.label != "last":',
        'if self.bos and self.label != "last":',
        (PROTOCOL_TASKS, TASK_LABELS),
    ),
    Mutant(
        "a swap may exchange a variable with itself",
        "hqlt_lab/tasks/state_tracking/state_based_recall.py",
        'rng.integers("second", 1, VARIABLES - 1, num_swaps)',
        'rng.integers("second", 0, VARIABLES - 1, num_swaps)',
        (PROTOCOL_TASKS, TASK_LABELS),
    ),
    Mutant(
        "checks come one swap too early",
        "hqlt_lab/tasks/state_tracking/state_based_recall.py",
        "((swap + 1) % np.maximum(gaps, 1) == 0)",
        "(swap % np.maximum(gaps, 1) == 0)",
        (PROTOCOL_TASKS, TASK_LABELS),
    ),
    Mutant(
        "no tag is asked after the last update",
        "hqlt_lab/tasks/state_tracking/tracked_recall.py",
        'rng.distinct_integers("query", 0, sizes - 1, self.queries)',
        'rng.distinct_integers("query", 0, np.maximum(sizes - 2, self.queries - 1), self.queries)',
        (PROTOCOL_TASKS, TASK_LABELS),
    ),
    Mutant(
        "equivalence tests one side",
        "hqlt_lab/stats/intervals.py",
        "return float(2 * stdtr(self.degrees, -distance / self.standard_error))",
        "return float(stdtr(self.degrees, -distance / self.standard_error))",
        (DIFFERENCES, "tests/report/test_intervals.py", "tests/report/test_verdict.py"),
    ),
    Mutant(
        "discordant seeds are tested at twice the level",
        "hqlt_lab/stats/baseline_differences.py",
        "return max(p, 2 * discordance_p_value(",
        "return max(p, discordance_p_value(",
        (DIFFERENCES, "tests/report/test_verdict.py"),
    ),
    Mutant(
        "arms of which one lost a seed may be equivalent",
        "hqlt_lab/stats/baseline_differences.py",
        "return bool(test.arm.lost_seeds ^ test.baseline.lost_seeds)",
        "return False",
        (DIFFERENCES, "tests/report/test_verdict.py"),
    ),
    Mutant(
        "the margin applies to every metric",
        "hqlt_lab/stats/baseline_differences.py",
        "margin = measure.margin if is_primary else 0.0",
        "margin = measure.margin",
        (DIFFERENCES, "tests/report/test_verdict.py"),
    ),
]

# more fixed defects, each with its fix removed
MORE_REVERTED_FIXES = [
    Mutant(
        "an experiment that was loaded is read again",
        "hqlt_lab/experiment/load_experiment.py",
        "    if isinstance(file, Experiment):\n        return file\n",
        "    if isinstance(file, Experiment):\n        file = file.file\n",
        ("tests/cli/test_study_commands.py::test_every_command_reads_and_validates_the_file_at_most_once",),
    ),
    Mutant(
        "the server accepts every host",
        "hqlt_lab/track/ui/network.py",
        '"MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(names),',
        '"MLFLOW_SERVER_ALLOWED_HOSTS": "*",',
        ("tests/track/test_network.py",),
    ),
    Mutant(
        "probes need gates without channels",
        "hqlt_lab/model/analysis/layer_probes.py",
        "return gate if gate.dim() == 3 else gate.flatten(3).mean(-1)",
        "return gate",
        ("tests/model/test_channel_gates.py",),
    ),
    Mutant(
        "seeds are extrapolated from two seeds",
        "hqlt_lab/stats/baseline_differences.py",
        "if n < MIN_SEEDS_EXTRAPOLATION or",
        "if n < 2 or",
        (DIFFERENCES,),
    ),
    Mutant(
        "missing data are reported behind metrics",
        "hqlt_lab/experiment/validate/issue_collector.py",
        'return (4, 0) if "." in issue.path else (0, 0)',
        "return (0, 0)",
        ("tests/experiment/test_all_issues.py", "tests/experiment/test_config_errors.py"),
    ),
    Mutant(
        "an invalid option exits like a mistake in a file",
        "hqlt_lab/cli/terminal/exit_codes.py",
        "return all(\n        issue.source.startswith",
        "return False and all(\n        issue.source.startswith",
        ("tests/cli/test_exit_codes.py",),
    ),
    Mutant(
        "a name clash names the second definition as the first",
        "registry/entries.py",
        'key=lambda component: not component.__module__.startswith("hqlt_lab."))',
        'key=lambda component: component.__module__.startswith("hqlt_lab."))',
        ("tests/registry/test_registry.py",),
    ),
    Mutant(
        "a check without combinations passes",
        "hqlt_lab/check/common_checks.py",
        "    if not num_legal:",
        "    if False:",
        (
            "tests/check/test_broken_components.py::test_component_without_any_legal_composition_does_not_pass_the_crossing_check",
        ),
    ),
]

# planted in verdicts at several looks, sizes of memories, the channel-gate scan and attention components
IN_LOOKS_AND_SIZES = [
    Mutant(
        "late looks spend as much as early ones",
        "hqlt_lab/stats/sequential_testing.py",
        "return alpha / (EQUAL_LOOKS + 1) / 2 ** max(0, look - EQUAL_LOOKS)",
        "return alpha / (EQUAL_LOOKS + 1)",
        LOOKS,
    ),
    Mutant(
        "decided comparisons count in the correction of later looks",
        "hqlt_lab/stats/sequential_testing.py",
        "p_values.append(None if is_decided else 1.0 if p is None else p)",
        "p_values.append(1.0 if p is None else p)",
        LOOKS,
    ),
    Mutant(
        "a look waits for lost seeds",
        "hqlt_lab/stats/sequential_testing.py",
        "return all(seed in arm.values or seed in arm.lost_seeds for arm in pair for seed in seeds)",
        "return all(seed in arm.values for arm in pair for seed in seeds)",
        LOOKS,
    ),
    Mutant(
        "seeds are extrapolated at the level of the look before",
        "hqlt_lab/stats/sequential_testing.py",
        "next_level = look_test.level * spend_alpha(look_test.look + 1) / spend_alpha(look_test.look)",
        "next_level = look_test.level",
        LOOKS,
    ),
    Mutant(
        "other metrics have looks of their own",
        "hqlt_lab/stats/sequential_testing.py",
        "in enumerate(schedule.counts[:num_looks], 1):",
        "in enumerate(schedule.counts, 1):",
        LOOKS,
    ),
    Mutant(
        "an interrupted run shortens the record of looks",
        "hqlt_lab/study/plan/sequential_testing_record.py",
        "    if len(counts) > len(read_looks(folder)):\n",
        "    if counts:\n",
        LOOKS,
    ),
    Mutant(
        "the resolution is the observed gap however few the seeds",
        "hqlt_lab/stats/metric_scale.py",
        'return observed if "eval/" in metric else min(max_resolution, observed)',
        "return observed",
        (DIFFERENCES,),
    ),
    Mutant(
        "groups of keys are assigned to heads in turn",
        "hqlt_lab/model/state.py",
        "u.repeat_interleave(heads // u.shape[1], 1)",
        "u.repeat(1, heads // u.shape[1], 1, 1)",
        ("tests/model/test_memory_sizes.py",),
    ),
    Mutant(
        "cached features follow those of the call",
        "hqlt_lab/model/softmax_memory.py",
        "features = torch.cat([past_features, features], 2)",
        "features = torch.cat([features, past_features], 2)",
        ("tests/components/test_attention.py",),
    ),
    Mutant(
        "small keeps of blocks wider than usual overflow",
        "hqlt_lab/ops/scan/channel_gate_chunk.py",
        "return MIN_BLOCK_LOG_KEEP / self.layout.block_size",
        "return MIN_BLOCK_LOG_KEEP / BLOCK_SIZE",
        (CHANNEL_SCAN,),
    ),
]
