"""Time, memory and disk space that training a cell takes, estimated or measured."""
