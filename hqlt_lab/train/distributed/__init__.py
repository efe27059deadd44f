"""Training on several devices: process environment, collectives, FSDP2, and the child process that trains."""
