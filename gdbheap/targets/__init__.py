"""Targets: a stopped or running process, its copy, or a core, each as one address space.

A target has mappings, residency, threads and loaded objects. The folder ``cores/`` has the code that only cores need.
The packages that use this one do not know which kind of target they read.
"""
