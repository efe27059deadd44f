"""Steps to solve: the share of seeds that have not solved the task yet, by training step (Kaplan-Meier).

A tick marks the step until which a seed was observed that did not solve the task.
"""

from typing import TYPE_CHECKING

from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import MUTED, add_legend, create_figure, truncate_title
from hqlt_lab.report.stats.solve_times import SolveTimes
from hqlt_lab.report.wording.solve_time_notes import describe_medians, describe_solved_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def steps_to_solve(data: DrawnArms) -> ReportFigure | None:
    """Draw the survival curve of each arm; None if no seed of any arm solves the task in training."""
    times_by_arm = {row.title: row.solve_times for row in data.drawn_rows if row.solve_times is not None}
    if not any(times.num_solved for times in times_by_arm.values()):
        return None
    figure, (panel,) = create_figure(2.9 + 0.1 * len(times_by_arm))
    panel.axhline(0.5, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    for number, row in enumerate(data.drawn_rows):
        if row.solve_times is not None:
            draw_survival(panel, row, row.solve_times, data, zorder=4 - number / 100)
    panel.set_xlim(left=0)
    panel.set_ylim(-0.03, 1.05)
    panel.set(xlabel=data.step_axis_label, ylabel="share of seeds not solved")
    panel.grid(True)
    add_legend(figure, panel)
    times = list(times_by_arm.values())
    caption = (
        "Share of seeds that have not solved the task (Kaplan-Meier). Vertical ticks mark where the observation of "
        "unsolved seeds ends; a line crosses the dashed line at the median. "
        f"{describe_medians(times_by_arm)} {describe_solved_step(times, data.experiment.measure)}{data.omitted_note}"
    )
    return ReportFigure(name="steps_to_solve", title="Steps to solve", caption=caption, figure=figure)


def draw_survival(panel: "Axes", row: Row, times: SolveTimes, data: DrawnArms, zorder: float) -> None:
    """Draw the curve of one arm from step 0 to its last observation, with ticks where seeds are censored."""
    style = data.line_style(row)
    steps = [0, *(step.time for step in times.curve), times.last_step]
    shares = [1.0, *(step.survival for step in times.curve)]
    panel.step(
        steps,
        [*shares, shares[-1]],
        where="post",
        color=style.color,
        linestyle=style.linestyle,
        label=truncate_title(row.title),
        zorder=zorder,
    )
    censored = sorted({time.time for time in times.by_seed.values() if not time.is_reached})
    shares_at_end = [
        min((step.survival for step in times.curve if step.time <= time), default=1.0) for time in censored
    ]
    panel.plot(censored, shares_at_end, color=style.color, linestyle="none", marker="|", markersize=9, zorder=zorder)
