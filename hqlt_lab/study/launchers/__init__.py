"""Who trains the cells of a study: one file each."""
