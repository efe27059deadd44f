"""Figures of a report, one module each: a function of DrawnArms that returns a ReportFigure, or None without data.

style                   colors, matplotlib settings, and a lock that makes drawing thread-safe
drawn_arms              which arms are drawn, and the style of each
report_figure           a figure with title and caption, as SVG and PNG
forest_plot             differences from the baseline, with intervals
rl_curves               validation metrics of agents during training
learning_curves         loss and validation metric during training
steps_to_solve          share of seeds that have not solved the task, by step
tuning_curves           scores of the values of tuned lists
length_generalization   the test metric by sequence length
long_context_curves     long-context evaluations of trained cells
heat_map                a grid of two or more factors
cost_quality            the metric against parameters, state size and FLOPs
memory_contribution     the fast weights' share of the output, and scores without either memory
draw_figures            draws all of them
"""
