"""Tolerations, one taint at a time, straight from the rules (docs/spec/matching.md#tolerations)."""

from app.model.objects import Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    effect = toleration.effect in ("", taint.effect)
    key = toleration.key in ("", taint.key)
    match toleration.operator:
        case "" | "Equal":
            value = toleration.value == taint.value
        case "Exists":
            value = True
        case _:
            value = False
    return effect and key and value


def untolerated(taints, tolerations, effects) -> list[Taint]:
    return [
        taint
        for taint in taints or ()
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations or ())
    ]
