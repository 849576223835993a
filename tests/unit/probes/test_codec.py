"""The codec: round trips, and messages that name the place."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.codec import DecodeError, decode, encode
from probes.errors import EXIT_USAGE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    count: int
    share: float
    label: str
    state: Literal["cold", "warm"]
    known: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    leaves: tuple[Leaf, ...]
    best: Leaf | None
    sizes: dict[str, int]
    note: str | None
    steps: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    level: Literal[0, 1]


LEAF = Leaf(count=3, share=0.5, label="a", state="cold", known=True)
TREE = Tree(leaves=(LEAF, LEAF), best=None, sizes={"Q4_0": 18}, note=None, steps=(1, 2))


def tree_value(**changes: object) -> dict[str, object]:
    return {**encode(TREE), **changes}


def leaf_value(**changes: object) -> dict[str, object]:
    return {**encode(LEAF), **changes}


def message_of(cls: type[object], value: object) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(cls, value)
    assert caught.value.reason == "bad-run-file"
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value)


counts = st.integers(min_value=0, max_value=2**63 - 1)
leaves = st.builds(
    Leaf,
    count=counts,
    share=st.floats(min_value=0, max_value=2**62),
    label=st.text(),
    state=st.sampled_from(["cold", "warm"]),
    known=st.booleans(),
)
trees = st.builds(
    Tree,
    leaves=st.lists(leaves, max_size=3).map(tuple),
    best=st.none() | leaves,
    sizes=st.dictionaries(st.text(), counts, max_size=3),
    note=st.none() | st.text(),
    steps=st.lists(counts, max_size=5).map(tuple),
)


@given(trees)
def test_a_record_survives_the_way_through_json_text(tree: Tree) -> None:
    assert decode(Tree, json.loads(json.dumps(encode(tree)))) == tree


def test_encoding_gives_plain_json_values() -> None:
    assert encode(LEAF) == {"count": 3, "share": 0.5, "label": "a", "state": "cold", "known": True}
    assert encode(TREE)["leaves"] == [encode(LEAF), encode(LEAF)]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_encoding_refuses_numbers_that_json_lacks(number: float) -> None:
    with pytest.raises(ValueError, match="unknown number"):
        encode(dataclasses.replace(LEAF, share=number))


def test_encoding_refuses_other_kinds_of_values() -> None:
    with pytest.raises(TypeError, match="set"):
        encode({"a": {1, 2}})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "top level: expected an object, got a list"),
        (tree_value(leaves="x"), "leaves: expected a list, got a string"),
        (
            tree_value(leaves=[encode(LEAF), leaf_value(count="3")]),
            "leaves[1].count: expected a whole number, got a string",
        ),
        (tree_value(best=leaf_value(known=1)), "best.known: expected true or false, got a whole number"),
        (tree_value(best=3.5), "best: expected an object, got a number"),
        (tree_value(sizes={"Q4_0": None}), 'sizes["Q4_0"]: expected a whole number, got null'),
        (tree_value(sizes=[1]), "sizes: expected an object, got a list"),
        (tree_value(steps=[1, True]), "steps[1]: expected a whole number, got true or false"),
        (tree_value(steps=[1.5]), "steps[0]: expected a whole number, got a number"),
        (tree_value(note={}), "note: expected a string, got an object"),
    ],
)
def test_the_message_names_the_place(value: object, message: str) -> None:
    assert message_of(Tree, value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": math.nan}, "share: expected a finite number"),
        ({"share": math.inf}, "share: expected a finite number"),
        ({"share": 10**400}, "share: expected a finite number"),
        ({"share": False}, "share: expected a number, got true or false"),
        ({"label": None}, "label: expected a string, got null"),
        ({"state": "hot"}, 'state: expected one of "cold", "warm", got "hot"'),
        ({"state": None}, 'state: expected one of "cold", "warm", got null'),
    ],
)
def test_wrong_scalars_are_refused(changes: dict[str, object], message: str) -> None:
    assert message_of(Leaf, leaf_value(**changes)) == message


def test_a_missing_field_is_named_unless_it_has_a_default() -> None:
    value = tree_value()
    del value["steps"]
    assert decode(Tree, value).steps == ()
    del value["sizes"]
    assert message_of(Tree, value) == "sizes: is missing"


def test_unknown_keys_are_ignored() -> None:
    assert decode(Leaf, leaf_value(added_later=[1, {"x": math.nan}])) == LEAF


def test_a_whole_number_is_a_fine_float() -> None:
    share = decode(Leaf, leaf_value(share=2)).share
    assert share == 2.0
    assert isinstance(share, float)


def test_text_of_a_file_is_shown_short_and_in_ascii() -> None:
    message = message_of(Leaf, leaf_value(state="\x1b[31m" + "é" * 500))
    assert message.isascii()
    assert "\x1b" not in message
    assert len(message) < 120


def test_a_literal_keeps_true_and_one_apart() -> None:
    assert decode(Switch, {"level": 1}).level == 1
    assert message_of(Switch, {"level": True}) == "level: expected one of 0, 1, got true"


def test_a_hint_it_does_not_know_is_a_mistake_of_the_program() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd:
        items: list[int]

    with pytest.raises(TypeError, match="does not know"):
        decode(Odd, {"items": []})


@pytest.mark.parametrize("number", [-1, 2**63, 10**400])
def test_numbers_that_no_record_holds_are_refused(number: int) -> None:
    with pytest.raises(DecodeError, match=r"best\.count"):
        decode(Tree, tree_value(best=leaf_value(count=number)))


def test_a_length_is_what_the_engine_can_count() -> None:
    @dataclasses.dataclass(frozen=True)
    class Lengths:
        prompt_tokens: tuple[int, ...]
        started_ns: int

    whole = {"prompt_tokens": [2**31 - 1], "started_ns": 2**62}
    assert decode(Lengths, whole) == Lengths((2**31 - 1,), 2**62)
    assert message_of(Lengths, whole | {"prompt_tokens": [1, 2**31]}) == (
        "prompt_tokens: expected a smaller number"
    )
