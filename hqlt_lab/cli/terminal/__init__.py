"""Terminal input and output shared by all commands.

console             standard output and standard error as rich consoles
exit_codes          the exit codes, and the exceptions that lead to them
shared_options      arguments and options that several commands share
completion          what the shell offers when Tab is pressed
model_size_tables   model sizes and rooflines as tables and as dictionaries
training_progress   progress of one training run
study_progress      progress of a study
next_command        the command that is suggested at the end of another
"""
