"""A plugin's answers as plain values, and the comparison of its filter with a twin on every sort of view."""

import gc

import numpy as np

from app.framework.interface import CycleState
from app.model.status import Code
from app.state.view import DryRunView, View


def rows_of(world, names):
    return np.array([world.table.row_of[name] for name in names], np.intp)


def verdicts(plugin, state, pod, view):
    """(code, reason) or None, per row of the view."""
    found = plugin.filter(state, pod, view)
    if found is None:
        return [None] * view.n
    assert len(found.codes) == len(found.reasons) == view.n
    return [
        (int(code), *found.text(int(reason))) if code else None
        for code, reason in zip(found.codes, found.reasons, strict=True)
    ]


def pre_filtered(plugin, pod):
    """(state, whether PreFilter skips)."""
    state = CycleState()
    status = plugin.pre_filter(state, pod)
    assert status.code in {Code.Success, Code.Skip}, status
    return state, status.code is Code.Skip


def judge(world, plugin, pod, view=None):
    """Verdicts by node name; None if PreFilter skips."""
    state, skipped = pre_filtered(plugin, pod)
    if skipped:
        return None
    view = view or View(world.table, rows_of(world, world.nodes))
    found = verdicts(plugin, state, pod, view)
    return dict(zip(view.names(), found, strict=True))


def check_filter(world, plugin, pod, twin, dice):
    """Compares on the full view, on some rows in any order, and on imagined worlds; returns what the full view said."""
    state, skipped = pre_filtered(plugin, pod)
    assert skipped == twin(world, pod).skip
    if skipped:
        return {}
    names = list(world.nodes)
    expected = {name: twin(world, pod).filter(world.nodes[name]) for name in names}
    full = verdicts(plugin, state, pod, View.everything(world.table))
    assert {name: full[world.table.row_of[name]] for name in names} == expected
    some = dice.random.sample(names, dice.random.randint(0, len(names)))
    view = View(world.table, rows_of(world, some))
    assert verdicts(plugin, state, pod, view) == [expected[name] for name in some]
    check_imagined(world, plugin, state, pod, twin, dice)
    return expected


def check_imagined(world, plugin, state, pod, twin, dice):
    """Every row a world of its own: pods are taken away, added and brought back, with questions in between."""
    names = dice.random.choices(list(world.nodes), k=5)
    view = DryRunView(world.table, rows_of(world, names))
    twins = [twin(world, pod) for _ in names]
    gone = [[] for _ in names]
    for _ in range(4):
        for position, name in enumerate(names):
            _imagine(world, view, twins[position], gone[position], position, name, dice)
        assert verdicts(plugin, state, pod, view) == [
            one.filter(world.nodes[name]) for one, name in zip(twins, names, strict=True)
        ]
    chosen = [4, 0, 2]
    assert verdicts(plugin, state, pod, view.take(np.array(chosen))) == [
        twins[position].filter(world.nodes[names[position]]) for position in chosen
    ]


def _imagine(world, view, twin, gone, position, name, dice):
    node = world.nodes[name]
    here = [other for other in world.on(name) if other not in gone]
    choice = dice.random.random()
    if here and choice < 0.6:
        victim = dice.random.choice(here)
        gone.append(victim)
        view.remove(position, victim)
        twin.update(victim, node, -1)
    elif gone and choice < 0.75:
        back = gone.pop()
        view.add(position, back)
        twin.update(back, node, 1)
    elif choice < 0.9:
        nominated = dice.pod(affinity=0.6).on(name)
        view.add(position, nominated)
        twin.update(nominated, node, 1)


def scored(world, plugin, pod, feasible, dice):
    """(raw, normalised) by node name, or None if PreScore skips; also asked about some of the nodes only."""
    state = CycleState()
    view = View(world.table, rows_of(world, feasible))
    status = plugin.pre_score(state, pod, view)
    assert status.code in {Code.Success, Code.Skip}, status
    if status.code is Code.Skip:
        return None
    raw = plugin.score(state, pod, view)
    assert raw.dtype == np.int64
    some = dice.random.sample(range(view.n), dice.random.randint(0, view.n))
    part = plugin.score(state, pod, view.take(np.array(some, np.intp)))
    assert part.tolist() == [int(raw[position]) for position in some]
    normalised = plugin.normalize(state, pod, raw.copy(), view)
    return (
        dict(zip(feasible, raw.tolist(), strict=True)),
        dict(zip(feasible, normalised.tolist(), strict=True)),
    )


def garbage_of_a_cycle(world, plugin, pod):
    """How many objects a filter and a score leave to the garbage collector; their arrays would pile up until it
    runs.
    """
    view = View.everything(world.table)
    gc.collect()
    gc.disable()
    try:
        state = CycleState()
        if plugin.pre_filter(state, pod).ok:
            plugin.filter(state, pod, view)
        if plugin.pre_score(state, pod, view).ok:
            plugin.normalize(state, pod, plugin.score(state, pod, view), view)
        del state
        return gc.collect()
    finally:
        gc.enable()
