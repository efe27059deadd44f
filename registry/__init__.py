"""Component registry: find and build interchangeable components by kind and name.

    @register("mixer", "sum")
    class Sum(nn.Module): ...

    available("mixer")                    -> ["fw_only", "kv_only", "scalar", ...]
    describe("mixer", "vector")           -> its documentation, file and line
    build("mixer", "vector", width=64)    -> the component itself

A factory is a class or a function. Its signature declares what it needs: parameters that the lab provides by name
(`width`, `heads`) are passed if the signature has them; all others are options of the component, with type and default.
This package does not import torch. The built-in components of a kind are imported when a name of that kind is first
looked up.
"""

assert __name__ == "hqlt_lab.registry", (
    "import hqlt_lab.registry: importing `registry` directly creates a second, empty registry"
)

from hqlt_lab.registry.build import build, parse_spec
from hqlt_lab.registry.discovery import find_builtin_modules, find_registered_names, import_builtin, list_names
from hqlt_lab.registry.entries import (
    Entry,
    available,
    describe,
    find_factory,
    is_interactive,
    list_interactive_components,
    register,
    temporary_components,
)
from hqlt_lab.registry.error_origin import find_external_components, find_failing_component
from hqlt_lab.registry.field_docs import read_field_docs
from hqlt_lab.registry.kinds import KINDS, Kind
from hqlt_lab.registry.notebook_source import SourceFile, generate_source
from hqlt_lab.registry.options import Option, format_type, matches_type, options
from hqlt_lab.registry.plugins import (
    RERUN_HINT,
    CodeChanged,
    export_to_subprocesses,
    list_declared_files,
    list_entry_points,
    list_loaded_files,
    list_project_files,
    load_components,
    record_generated_files,
)
from hqlt_lab.registry.settings_parsing import check_maximums, check_minimums, parse_settings
from hqlt_lab.registry.source_reader import ComponentInfo, inspect_component, list_components_of_kind

__all__ = [
    "KINDS",
    "RERUN_HINT",
    "CodeChanged",
    "ComponentInfo",
    "Entry",
    "Kind",
    "Option",
    "SourceFile",
    "available",
    "build",
    "check_maximums",
    "check_minimums",
    "describe",
    "export_to_subprocesses",
    "find_builtin_modules",
    "find_external_components",
    "find_factory",
    "find_failing_component",
    "find_registered_names",
    "format_type",
    "generate_source",
    "import_builtin",
    "inspect_component",
    "is_interactive",
    "list_components_of_kind",
    "list_declared_files",
    "list_entry_points",
    "list_interactive_components",
    "list_loaded_files",
    "list_names",
    "list_project_files",
    "load_components",
    "matches_type",
    "options",
    "parse_settings",
    "parse_spec",
    "read_field_docs",
    "record_generated_files",
    "register",
    "temporary_components",
]
