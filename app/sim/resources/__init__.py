"""The kinds that the embedded cluster serves, and the rules of each."""
