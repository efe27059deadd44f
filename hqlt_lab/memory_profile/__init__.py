"""Memory profiles: what a composition of components learns in a fixed battery of small experiments.

    runs/profiles/NAME/profile_NAME_TEST.yaml     one experiment file per test, with the composition
    runs/profiles/NAME/profile.json, .md, .svg    the scores of all tests

Each test is an ordinary study: its cells are in `runs/studies/profile_NAME_TEST`.  The files of the battery are in the
folder `battery`; they have a task, sizes and training, and no components.

    load_battery         the tests of the battery
    composition          the components that are profiled, from an experiment file and from --set
    profile_experiments  the experiment of each test: the battery's file with a composition
    profile_scores       scores of a test from its report, normalized so that chance is 0
    memory_profile       a profile as a value, and its JSON file
    profile_tables       the table of one profile, and of several
    profile_figures      the figure of one profile, and of several
    profile_comparison   several profiles side by side
"""
