"""What goes wrong with an expression."""


class EvaluationError(Exception):
    """An expression has no value for this input. ``&&``, ``||`` and the quantifiers may do without it."""


class EvaluationAborted(Exception):  # noqa: N818 - it says what happened
    """An evaluation ended in the middle: nothing absorbs this."""


class CostLimitExceeded(EvaluationAborted):
    """It took too long."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class CompileError(Exception):
    """An expression that cannot be used. The text is kube-scheduler's, but for syntax errors."""
