"""Answers of extenders: right ones, wrong ones, and what is no answer at all, down to the bytes of HTTP."""

import gzip
import zlib
from collections.abc import Sequence
from random import Random

import msgspec

from tests.fuzz.kinds import NODES
from tests.fuzz.shapes import (
    LARGEST_OBJECT,
    Leaf,
    List,
    Map,
    Number,
    Obj,
    Shape,
    draw,
    encode,
    junk,
    must,
    often,
    rare,
)

_ODD = ("", " ", "\0", "nowhere", "node-0\0", "NODE-0", "\u00fc", "x" * 10_000)
NODE_NAME = Leaf(NODES, _ODD)
_TEXT = Leaf(
    ("", "too hot", "\u00fc"), ("x" * 300_000, "\u202e\r\n\0", msgspec.Raw(b'"caf\\ud83d"'))
)
SCORE = Number(0, 10)
_REASONS = Map(NODE_NAME, _TEXT, 4)
_NODE = Obj({"metadata": must(Obj({"name": must(NODE_NAME)}))})
FILTER = Obj(
    {
        "NodeNames": often(List(NODE_NAME, 6)),
        "Nodes": rare(Obj({"metadata": rare(Leaf(({},))), "items": must(List(_NODE, 6))})),
        "FailedNodes": often(_REASONS),
        "FailedAndUnresolvableNodes": rare(_REASONS),
        "Error": often(
            Leaf(("", "", "boom"), ("x" * 300_000, "\u202e\r\n\0", msgspec.Raw(b'"caf\\ud83d"')))
        ),
    }
)
PRIORITIZE = List(Obj({"Host": must(NODE_NAME), "Score": must(SCORE)}), 8)
_POD = Obj({"UID": must(Leaf(("uid-normal-1", "uid-normal-2"), _ODD))})
PREEMPT = Obj(
    {
        "NodeNameToMetaVictims": must(
            Map(
                NODE_NAME,
                Obj({"Pods": must(List(_POD, 3)), "NumPDBViolations": often(Number(0, 3))}),
                3,
            )
        )
    }
)
BIND = Obj({"Error": often(Leaf(("", "", "boom"), _TEXT.odd))})
ANSWERS: dict[str, Shape] = {
    "filter": FILTER,
    "prioritize": PRIORITIZE,
    "preempt": PREEMPT,
    "bind": BIND,
}

_TAGS = {
    "NodeNames": "nodenames",
    "Nodes": "nodes",
    "FailedNodes": "failedNodes",
    "Error": "error",
    "Host": "host",
    "Score": "score",
}
_BODIES: Sequence[bytes] = (
    b"", b"   ", b"null", b"[]", b"{}", b'"x"', b"123", b"true", b"NaN", b"<html>502</html>", b'{"NodeNames": ["n0', b"\xef\xbb\xbf{}", b"\0\0", b"\xff\xfe",
    '{"Error":"x"}'.encode("utf-16"), b'{"Error":"\xff\xfe"}', b"[" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"[" * 9000 + b"]" * 9000,
    b'{"NodeNames":[]} trailing', b'{"NodeNames":[]}{"NodeNames":["node-0"]}', b'{"NodeNames":["node-0"],"NodeNames":null,"NodeNames":["node-1"]}',
    b'{"NodeNames":["node-0"],"x":' + b"9" * 5000 + b"}", b'[{"Host":"node-0","Score":' + b"9" * 5000 + b"}]", b'[{"Host":"node-0","Score":1e400}]',
    b'[{"Host":"node-0","Score":1e3}]', b'[{"Host":"node-0","Score":9223372036854775807},{"Host":"node-0","Score":9223372036854775807}]',
    b'{"NodeNameToMetaVictims":{"node-0":null}}', b'{"NodeNameToMetaVictims":{"node-0":{"Pods":[null]}}}', b'{"nodenames":["node-0"],"NODENAMES":["node-1"]}',
)  # fmt: skip


def answer(verb: str, random: Random, harm: float) -> bytes:
    """The body of an answer; valid without ``harm``."""
    if harm and random.random() < harm:
        return _damaged(random.choice(_BODIES), random)
    value = draw(ANSWERS[verb], random, harm)
    if isinstance(value, dict) and random.random() < 0.3:
        value = {_TAGS.get(key, key): entry for key, entry in value.items()}
    body = encode(value)[:LARGEST_OBJECT]
    return _damaged(body, random) if random.random() < harm else body


def _damaged(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body) + 1)
    match random.randrange(5):
        case 0:
            return body[:at]
        case 1:
            return (
                body[:at]
                + random.choice([b"\xff", b"\0", b'"', b"}", b"]", b",", b"\\ud800", b"1e9"])
                + body[at:]
            )
        case 2:
            return body + encode(junk(random))
    return body


# ---------------------------------------------------------------- HTTP

_STATUSES = (
    200,
    200,
    200,
    200,
    200,
    201,
    204,
    206,
    301,
    302,
    307,
    308,
    400,
    401,
    404,
    429,
    500,
    503,
    0,
    99,
    999,
    100,
    101,
    103,
)
_HEADERS: Sequence[bytes] = (
    b"Content-Type: application/json", b"Content-Type: text/html; charset=utf-7", b"Retry-After: 2", b"Retry-After: 99999999999999999999", b"Retry-After: -1",
    b"Retry-After: Wed, 99 Foo", b"Location: http://127.0.0.1:1/x", b"Location: ht!tp://[::bad", b"Location: /filter", b"Set-Cookie: a=b", b"X: " + b"h" * 100_000,
    b"no colon", b"X: \0\x01", b"Connection: close", b"Connection: upgrade", b"Upgrade: x", b"Date: x", b"Trailer: X", b": empty", b"X\xff: \xff",
)  # fmt: skip


def http(body: bytes, random: Random) -> bytes:
    """The bytes of an answer with this body, often not quite HTTP."""
    status = random.choice(_STATUSES)
    lines = [
        b"HTTP/1.%d %03d %b"
        % (random.random() < 0.9, status, random.choice([b"OK", b"", b"x" * 5000]))
    ]
    lines += random.choices(_HEADERS, k=random.choice([0, 0, 1, 2]))
    if random.random() < 0.1:
        compress = random.choice(
            [gzip.compress, zlib.compress, lambda sent: gzip.compress(sent)[:-9], bytes]
        )
        body = compress(body)
        lines.append(
            b"Content-Encoding: " + random.choice([b"gzip", b"deflate", b"br", b"identity", b"x"])
        )
    choice = random.random()
    if choice < 0.6:
        lines.append(b"Content-Length: %d" % len(body))
    elif choice < 0.7:
        lines.append(
            b"Content-Length: "
            + random.choice(
                [
                    b"-1",
                    b"0",
                    b"3",
                    b"99999999999999999999",
                    b"ten",
                    b"5, 5",
                    b"%d" % (len(body) + 9),
                ]
            )
        )
    elif choice < 0.9:
        lines.append(b"Transfer-Encoding: chunked")
        half = len(body) // 2
        size = random.choice(
            [b"%x" % half, b"%x" % half, b"%x;ext=1" % half, b"zz", b"-5", b"f" * 20, b""]
        )
        body = b"%b\r\n%b\r\n%x\r\n%b\r\n0\r\n%b\r\n" % (
            size,
            body[:half],
            len(body) - half,
            body[half:],
            random.choice([b"", b"X: 1\r\n", b"x"]),
        )
    end = random.choice([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n"])
    sent = end.join([*lines, b"", b""]) + body
    if random.random() < 0.1:
        sent = random.choice(
            [
                b"HTTP/1.1 100 Continue\r\n\r\n" * random.choice([1, 300]) + sent,
                sent[: random.randrange(len(sent))],
                sent + sent,
                random.randbytes(300),
                b"",
            ]
        )
    return sent
