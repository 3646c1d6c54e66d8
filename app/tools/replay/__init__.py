"""The command ``replay``: lets a recorded scheduler live once more, and compares what it decides."""
