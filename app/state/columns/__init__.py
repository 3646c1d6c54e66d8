"""Columns of the node table and the indexes behind them: what plugins ask about many nodes at once."""
