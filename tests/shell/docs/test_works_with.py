"""docs/works-with.md: every project of its table has a contract, and every contract is in the table."""

import re

import pytest

from tests.markdown import ROOT

TEXT = (ROOT / "docs" / "works-with.md").read_text()
CONTRACTS = "\n".join(
    path.read_text() for path in sorted((ROOT / "tests" / "whole" / "contracts").glob("test_*.py"))
)
HEADS = re.findall(r"^# -{60,} (.+)$", CONTRACTS, re.MULTILINE)
#: What the contracts call a project, where that is not what the table calls it.
CALLED = {
    "Stork and LINSTOR": ["Stork", "LINSTOR scheduler extender"],
    "gpushare and Elastic GPU": ["gpushare", "Elastic GPU scheduler"],
    "AWS Neuron": ["AWS Neuron scheduler"],
    "TiDB": ["TiDB operator"],
}


def projects():
    rows = re.findall(r"^\| \[([^\]]+)\]\([^)]+\)[^|]*\|[^|]*\|([^|]*)\|", TEXT, re.MULTILINE)
    return {name: tried.strip() for name, tried in rows}


def test_every_contract_is_in_the_table():
    named = {name for head in HEADS for name in CALLED.get(head, [head])}
    assert len(named) >= 15
    assert {name for name, tried in projects().items() if "contract" in tried} == named


@pytest.mark.parametrize("name", sorted(projects()))
def test_nothing_is_in_the_table_that_was_not_tried(name):
    assert re.match(r"(contract|real)\b", projects()[name])
