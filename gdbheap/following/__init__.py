"""Observe calls in a running process: find the calls that make its heap grow, and catch chosen malloc calls with their
stacks.
"""
