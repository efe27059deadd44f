"""Training on several devices: process environment, process group, FSDP2, and the process of each rank."""
