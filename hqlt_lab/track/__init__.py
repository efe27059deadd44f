"""Copying studies to MLflow: runs, metrics, artifacts and provenance, read from the run folders.

Training never calls MLflow.  A worker writes every metric into its cell's folder; a thread of the coordinating process
reads the folders every few seconds and sends what MLflow does not have yet.  So nothing is lost if the tracking store
is down, locked or deleted: it is brought up to date later, and a crash at any point causes no duplicates.

study_description   what is sent of a study and a cell, besides the content of their folders
mlflow_content      metrics, times, tags and artifacts from a cell's folder
tags                tags and parameters in the form that MLflow accepts
mlflow_writer       the calls to MLflow for a study and its cells
mlflow_sync         the thread that sends a study while it runs, and functions that send once
tracking_store      a tracking store and its client
store_health        fail fast if a tracking store is unavailable
provenance          code hashes, git state, library versions and machine
saved_view          the saved view of a study in the MLflow UI
ui/                 the MLflow server behind `hqlt ui`, and its network settings
"""
