"""Launchers: how and where the cells of a study are trained; one file each."""
