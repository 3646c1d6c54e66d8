"""The kinds the embedded cluster serves, and what is special about each."""
