"""Questions what would happen, about random clusters: the answers are compared with what then happens."""
