"""The commands of `hqlt`: one file per command or group of commands."""
