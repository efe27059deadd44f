"""Comparison of two or more cells or studies; each is compared with the first one.

comparison_targets      loads what is compared: trained cells and studies
comparison_section      one section of a comparison: sentences, a table, and entries for JSON
setting_differences     settings that differ
code_differences        source code hashes and commits that differ
result_differences      metrics, and their differences
mean_difference         difference of two means, paired or Welch
published_differences   results of a study against published values
build_comparison        the complete comparison
"""
