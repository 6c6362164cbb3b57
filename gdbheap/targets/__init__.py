"""Targets: a stopped or running process, its copy, or a core, each as one address space.

A target has mappings, residency, threads and loaded objects. The folder ``cores/`` has the code that only cores need.
No package above this one knows which kind of target it reads.
"""
