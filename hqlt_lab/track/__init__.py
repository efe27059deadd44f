"""MLflow as a mirror of what the cells' folders hold: runs, curves, artifacts, provenance.

Training never talks to MLflow.  A worker writes every point into its cell's folder; a courier, a thread of the process
that coordinates, looks at the folders now and then and sends what MLflow lacks.  So a tracker that is down, locked or
gone loses nothing and catches up, and a crash anywhere repeats nothing.

spool         the points of a run's curves, in its folder
card          what is to be mirrored: a study, a cell
provenance    which code, libraries and machine made a result
forms         which scan and which attention a composition takes
machine       git, versions, processors: what provenance is made of
courier       the thread, and the same without one
mirror        the calls to MLflow for a cell
home          those for the study: its experiment and parent run
folder        what a cell's folder tells besides its curves
words         tags and parameters, in the form MLflow takes
sent          what MLflow has of a folder, noted in the folder
store         a tracking store, and opening it
knock         noticing in time that it is away
view          the saved view of a study in the browser
server        the MLflow server behind `hqlt ui`
doors         who may reach it
"""
