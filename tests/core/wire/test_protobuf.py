"""Kubernetes' protobuf encoding: fields of messages, and finalizers, which are added without changing the rest."""

import pytest

from app.wire.envelope import DecodeError
from app.wire.protobuf import fields, resource_version, with_finalizer


def piece(number, content):
    """A field with a length; two bytes of length where one is too few."""
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + content


def claim(*, version, finalizers=(), spec=b"x" * 200):
    """A ResourceClaim: type and object; metadata and spec."""
    finalizers = b"".join(piece(14, finalizer.encode()) for finalizer in finalizers)
    generation = bytes([7 << 3, 0x80, 0x01])
    metadata = piece(1, b"c") + piece(6, version.encode()) + generation + finalizers
    kind = piece(1, b"resource.k8s.io/v1") + piece(2, b"ResourceClaim")
    return b"k8s\0" + piece(1, kind) + piece(2, piece(1, metadata) + piece(2, spec))


def test_the_version():
    assert resource_version(claim(version="4711", finalizers=["a"])) == "4711"
    assert resource_version(claim(version="")) == ""


def test_a_finalizer_is_appended_and_all_else_kept():
    before = claim(version="1", finalizers=["a"])
    kind, content = before[4:41], before[44:]
    assert before == b"k8s\0" + kind + piece(2, content)
    added = piece(1, piece(14, b"example.com/keep"))
    assert with_finalizer(before, "example.com/keep") == b"k8s\0" + kind + piece(2, content + added)


@pytest.mark.parametrize(
    "encoded",
    [
        b"{}",
        b"",
        claim(version="1")[:-1],
        claim(version="1")[:42],
        b"k8s\0" + bytes([2 << 3 | 5, 0, 0, 0, 0]),
    ],
)
def test_what_is_no_object(encoded):
    with pytest.raises(DecodeError):
        with_finalizer(encoded, "a")


def test_the_fields_of_a_message():
    message = bytes([1 << 3, 0x96, 0x01]) + piece(2, b"abc") + bytes([3 << 3 | 5, 1, 0, 0, 0])
    message += bytes([4 << 3 | 1, 2, 0, 0, 0, 0, 0, 0, 0])
    assert list(fields(message)) == [(1, 150), (2, b"abc"), (3, 1), (4, 2)]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (bytes([1 << 3]), "a number does not end"),
        (bytes([1 << 3]) + b"\x80" * 100_000, "a number does not end"),
        (bytes([1 << 3 | 2, 5]) + b"abcd", "a field is longer than its message"),
        (bytes([1 << 3 | 1, 5]), "a field is longer than its message"),
        (bytes([1 << 3 | 3]), "wire type 3"),
    ],
)
def test_malformed_messages(message, text):
    with pytest.raises(ValueError, match=text):
        list(fields(message))
