"""A state that has lived through many changes decides as one that was built from the same objects just now."""
