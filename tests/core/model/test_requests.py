"""What pods ask for: the sums over containers."""

from hypothesis import given
from hypothesis import strategies as st

from app.model.objects import Container, PodSpec, ResourceRequirements
from app.model.pod import PodTemplate
from app.model.requests import nonzero_requests, pod_requests, resources_from

AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "e.x/a"]), st.integers(-2, 9), max_size=3
)
CONTAINERS = st.lists(st.tuples(AMOUNTS, st.booleans()), max_size=6)


def container(amounts, always=False):
    requests = {name: f"{amount}n" for name, amount in amounts.items()}
    policy = "Always" if always else None
    return Container(resources=ResourceRequirements(requests=requests), restart_policy=policy)


def summed(many):
    total = {}
    for amounts in many:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def largest(many):
    names = dict.fromkeys(name for amounts in many for name in amounts)
    return {name: max(amounts[name] for amounts in many if name in amounts) for name in names}


@given(st.lists(AMOUNTS, max_size=4), CONTAINERS)
def test_a_pod_asks_for_the_most_that_it_needs_at_any_time(containers, init_containers):
    """Step by step: an init container runs beside the sidecars that were started before it."""
    steps = []
    for number, (amounts, always) in enumerate(init_containers):
        sidecars = [own for own, stays in init_containers[: number + always] if stays]
        steps.append(summed(sidecars if always else [*sidecars, amounts]))
    running = summed([*containers, *(own for own, stays in init_containers if stays)])
    spec = PodSpec(
        containers=tuple(map(container, containers)),
        init_containers=tuple(container(*each) for each in init_containers),
    )
    assert pod_requests(spec) == largest([running, *steps])


OVERHEAD = st.none() | AMOUNTS.map(lambda amounts: {name: f"{n}n" for name, n in amounts.items()})


@given(st.lists(AMOUNTS, min_size=1, max_size=3), CONTAINERS, OVERHEAD)
def test_a_template_that_needs_no_defaults_computes_its_request_once(containers, inits, overhead):
    spec = PodSpec(
        containers=tuple(map(container, containers)),
        init_containers=tuple(container(*each) for each in inits),
        overhead=overhead,
    )
    template, plain = PodTemplate(spec), pod_requests(spec)
    assert template.fit_score_request == pod_requests(spec, pod_level=False, nonzero=True)
    assert template.resources == resources_from(plain, nonzero_requests(spec, None, plain))
