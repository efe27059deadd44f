"""Table of the steps that each arm needs to solve the task."""

from collections.abc import Sequence

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.build_tables import Table
from hqlt_lab.report.stats.solve_times import SolveTimes
from hqlt_lab.report.wording.solve_time_notes import format_median, solve_time_notes


def build_solve_table(experiment: Experiment, rows: Sequence[Row]) -> Table | None:
    """Build the table of steps to solve, one line per arm; None if they are not measured."""
    times = {row.title: row.solve_times for row in rows if row.solve_times is not None}
    if not times:
        return None
    columns = ["arm", "solved", "fastest seed", "median steps [interval]", "confidence", "steps observed"]
    return Table(
        columns,
        [[title, *solve_cells(each)] for title, each in times.items()],
        solve_time_notes(list(times.values()), experiment.measure),
    )


def solve_cells(times: SolveTimes) -> list[str]:
    """Return the cells of one arm after its name."""
    return [
        f"{times.num_solved} of {len(times.by_seed)}",
        str(times.curve[0].time) if times.curve else "–",
        format_median(times),
        "–" if times.interval is None else f"{100 * times.interval.confidence:.1f} %",
        str(times.last_step),
    ]
