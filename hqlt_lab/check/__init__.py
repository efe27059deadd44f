"""Conformance checks for registered components, built-in ones and your own, and comparison of backends.

hqlt check update_rule delta                       on the command line
lab.check_component("update_rule", "delta")        in Python, and in your own tests: .assert_passed()

conformance               selects and runs the checks of a kind
conformance_report        the results: passed, failed with a reason, or an illegal combination
component_under_test      the component under test, in models small enough to test exhaustively
common_checks             checks of every kind of component
kind_checks               checks of update rules, attention, timings, mixers, positions, feature maps
task_checks               checks of tasks with generated examples
study_integration_check   a small study with the component: planned, trained, probed, reported
unpacked_reference        reference for padding and packing: every document in a call of its own
backend_comparison        every backend compared with the reference implementation
modules                   checks of layers, models and functions that are not components
triton_interpreter        runs fla's Triton kernels on a CPU
"""
