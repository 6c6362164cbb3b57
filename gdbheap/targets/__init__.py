"""Targets: a stopped or running process, its copy, or a core, each as one address space.

A target has mappings, residency, threads and loaded objects. ``cores/`` has what only cores need. No package above this
one knows which kind of target it reads.
"""
