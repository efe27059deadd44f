"""A study's workers as jobs of SLURM: the script, the commands that submit and ask, and the crew that follows."""
