"""Check a module, a causal language model of transformers or a function, which need not know hqlt_lab.

lab.check_module("transformers:BambaForCausalLM")
lab.check_module(MyLayer, {"width": 64}, call={"mask": "padding"}).assert_passed()
lab.check_module("fla.ops.comba.naive:naive_chunk_comba", against="fla.ops.comba.naive:naive_recurrent_comba")
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any

from hqlt_lab.check.conformance_report import CheckFailed, CheckResult, ConformanceReport
from hqlt_lab.check.modules.adapter_interface import Adapter, NotApplicable
from hqlt_lab.check.modules.cache_lines import (
    continuing_equals_one_pass,
    decoding_equals_one_pass,
    state_does_not_grow,
    state_has_the_declared_size,
)
from hqlt_lab.check.modules.call_options import CallOptions, parse_call_options
from hqlt_lab.check.modules.causality_lines import (
    appended_tokens_change_nothing,
    later_tokens_change_nothing,
    later_tokens_get_no_gradient,
)
from hqlt_lab.check.modules.document_lines import packed_documents_are_independent
from hqlt_lab.check.modules.implementation_lines import (
    implementations_are_equal,
    implementations_are_equal_with_strong_decays,
)
from hqlt_lab.check.modules.padding_lines import (
    padding_leaves_the_state,
    padding_on_the_left_has_no_effect,
    padding_on_the_right_has_no_effect,
)
from hqlt_lab.check.modules.parameter_lines import (
    every_parameter_gets_a_gradient,
    initial_values_survive_a_backbone,
    initial_values_survive_a_file,
)
from hqlt_lab.check.modules.row_and_dtype_lines import dtype_is_kept, rows_are_independent
from hqlt_lab.check.modules.target import make_adapter

Line = Callable[[Adapter], str]
LINES: tuple[Line, ...] = (
    later_tokens_change_nothing,
    appended_tokens_change_nothing,
    later_tokens_get_no_gradient,
    rows_are_independent,
    padding_on_the_left_has_no_effect,
    padding_on_the_right_has_no_effect,
    padding_leaves_the_state,
    packed_documents_are_independent,
    decoding_equals_one_pass,
    continuing_equals_one_pass,
    state_does_not_grow,
    state_has_the_declared_size,
    dtype_is_kept,
    every_parameter_gets_a_gradient,
    initial_values_survive_a_backbone,
    initial_values_survive_a_file,
)
COMPARISON_LINES: tuple[Callable[[Adapter, Adapter], str], ...] = (
    implementations_are_equal,
    implementations_are_equal_with_strong_decays,
)


def check_module(
    target: str | Callable[..., Any],
    settings: Mapping[str, Any] | None = None,
    *,
    call: CallOptions | Mapping[str, Any] | None = None,
    against: str | Callable[..., Any] | None = None,
) -> ConformanceReport:
    """Check a sequence layer, a language model of transformers, or a function of queries, keys, values and gates.

    `target` is a class, a function, or its name as package.module:Name.  `settings` are the arguments of a class, the
    settings of a configuration of transformers, or further arguments of a function.  `call` states how the target is
    called, if this cannot be detected.  `against` is a second implementation, which is built with the same settings.
    """
    options = call if isinstance(call, CallOptions) else parse_call_options(call or {})
    adapter = make_adapter(target, settings or {}, options)
    results = [run_line(line.__name__, partial(line, adapter)) for line in LINES]
    if against is not None:
        other = make_adapter(against, settings or {}, options)
        results += [run_line(line.__name__, partial(line, adapter, other)) for line in COMPARISON_LINES]
    return ConformanceReport("module", adapter.name, tuple(results))


def run_line(name: str, line: Callable[[], str]) -> CheckResult:
    """Return the result of a line; any exception that the target raises is a failure."""
    title = name.replace("_", " ")
    try:
        return CheckResult(title, "passed", line())
    except NotApplicable as reason:
        return CheckResult(title, "not applicable", str(reason))
    except CheckFailed as failure:
        return CheckResult(title, "failed", str(failure))
    except Exception as error:  # a target may raise anything
        frame = extract_tb(error.__traceback__)[-1]
        text = str(error).strip().split("\n")[0]
        location = f"{Path(frame.filename).name}, line {frame.lineno}"
        return CheckResult(title, "failed", f"raised {type(error).__name__}: {text} ({location})")
