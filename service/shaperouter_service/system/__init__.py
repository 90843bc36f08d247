"""The machine that a process runs on: its processes, memory, descriptors, files and devices."""
