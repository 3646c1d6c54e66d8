"""The scheduling queue: which pod is tried next, which wait, and what wakes them."""
