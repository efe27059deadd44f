"""Executors: run the attempts of a study's cells as local processes, as Ray tasks or as SLURM jobs."""
