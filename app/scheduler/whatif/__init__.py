"""Answers what would happen (docs/whatif.md): on a mirror of the state, with the scheduler's own cycles, writing
nothing.
"""
