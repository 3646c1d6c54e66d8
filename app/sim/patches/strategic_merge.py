"""Strategic merge patch: a merge patch that merges lists by keys.

Directives, all inside the patch (https://github.com/kubernetes/design-proposals-archive, strategic merge patch):

- ``$patch: replace`` in an object: the object is replaced by the patch; in a list of objects: the list is.
- ``$patch: delete`` in an object: it is emptied; in a list element: the element with its merge key is removed.
- ``$deleteFromPrimitiveList/<field>``: these values leave the list.
- ``$setElementOrder/<field>``: merge keys (or values) in the order the list shall have.
- ``$retainKeys`` in an object: all other keys leave it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.sim.errors import bad_request
from app.sim.patches.merge_keys import ANY, MergeRule, Struct

Json = dict[str, Any]

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_PLAIN: Final = MergeRule()


def apply_strategic_merge(original: Json, patch: Any, struct: Struct) -> Json:
    """Returns ``original`` with ``patch`` merged in. Neither is changed, but the result may share parts of both.

    Raises 400 if the patch breaks the rules of its directives.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is an object")
    return _merge_object(original, patch, struct)


def _merge_object(original: Json, patch: Json, struct: Struct) -> Json:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type found: {directive}")
    result = _retained(original, patch)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, patch, struct.fields.get(key, _PLAIN))
    _apply_list_directives(result, patch, struct)
    return result


def _retained(original: Json, patch: Json) -> Json:
    if _RETAIN not in patch:
        return dict(original)
    keys = patch[_RETAIN]
    extra = [key for key in patch if not key.startswith("$") and key not in keys]
    if extra:
        raise bad_request(f"$retainKeys does not name {extra[0]}, which the patch sets")
    return {key: value for key, value in original.items() if key in keys}


def _merge_field(result: Json, key: str, value: Any, patch: Json, rule: MergeRule) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        result[key] = _merge_value(result.get(key), value, rule)
    elif isinstance(value, list) and rule.merge:
        order = patch.get(_ORDER + key)
        result[key] = _merge_list(_list(result.get(key)), value, rule, order)
    else:
        result[key] = value


def _merge_value(current: Any, value: Json, rule: MergeRule) -> Json:
    if rule.replace or not isinstance(current, dict):
        current = {}
    return _merge_object(current, value, rule.struct or ANY)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _apply_list_directives(result: Json, patch: Json, struct: Struct) -> None:
    for directive, value in patch.items():
        if directive.startswith(_DELETE_FROM):
            key = directive.removeprefix(_DELETE_FROM)
            if key in result:
                result[key] = [item for item in _list(result[key]) if item not in value]
        elif directive.startswith(_ORDER):
            key = directive.removeprefix(_ORDER)
            if key in result and key not in patch:
                rule = struct.fields.get(key, _PLAIN)
                current = _list(result[key])
                result[key] = _ordered(current, current, rule, value)


def _merge_list(
    original: Sequence[Any], patch: Sequence[Any], rule: MergeRule, order: Sequence[Any] | None
) -> list[Any]:
    if not rule.merge_key:
        merged = list(original) + [item for item in patch if item not in original]
    elif any(_directive(item) == "replace" for item in patch):
        return [item for item in patch if _directive(item) != "replace"]
    else:
        merged = _merge_elements(original, patch, rule)
    if order is None:
        order = [item for item in patch if _directive(item) is None]
    return _ordered(merged, original, rule, order)


def _directive(item: Any) -> Any:
    return item.get(_PATCH) if isinstance(item, dict) else None


def _merge_elements(original: Sequence[Any], patch: Sequence[Any], rule: MergeRule) -> list[Any]:
    merged = list(original)
    for item in patch:
        identity = _identity(item, rule)
        places = [place for place, known in enumerate(merged) if _same(known, identity, rule)]
        if _directive(item) == "delete":
            merged = [known for place, known in enumerate(merged) if place not in places]
        elif places:
            merged[places[0]] = _merge_object(merged[places[0]], item, rule.struct or ANY)
        else:
            merged.append(_merge_object({}, item, rule.struct or ANY))
    return merged


def _identity(item: Any, rule: MergeRule) -> Any:
    if not isinstance(item, Mapping):
        raise bad_request(f"found {item!r} where an object with {rule.merge_key!r} is needed")
    if rule.merge_key not in item:
        raise bad_request(
            f"map: {dict(item)} does not contain declared merge key: {rule.merge_key}"
        )
    return item[rule.merge_key]


def _same(item: Any, identity: Any, rule: MergeRule) -> bool:
    return isinstance(item, dict) and item.get(rule.merge_key) == identity


def _ordered(
    merged: Sequence[Any], original: Sequence[Any], rule: MergeRule, order: Sequence[Any]
) -> list[Any]:
    """Sorts the elements named by ``order`` in that order. The others keep their positions.

    An element that is not named goes before a named one only if it stood before it in the original.
    """
    keys = [_key(item, rule) for item in order]
    before = [_key(item, rule) for item in original]
    named = sorted(
        (item for item in merged if _key(item, rule) in keys),
        key=lambda item: keys.index(_key(item, rule)),
    )
    others = [item for item in merged if _key(item, rule) not in keys]
    result: list[Any] = []
    for item in named:
        while others and _stood_before(_key(others[0], rule), _key(item, rule), before):
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _stood_before(left: Any, right: Any, before: Sequence[Any]) -> bool:
    if left not in before or right not in before:
        return False
    return before.index(left) < before.index(right)


def _key(item: Any, rule: MergeRule) -> Any:
    return item.get(rule.merge_key) if rule.merge_key and isinstance(item, dict) else item
