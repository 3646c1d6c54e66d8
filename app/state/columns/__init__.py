"""Columns of the node table, and indexes over the pods and labels on its rows."""
