#!/usr/bin/env python3
"""Checks a WEIR_TRACE file: trace_check.py FILE RANK MESSAGE_HEADER [--cut].

Every line is JSON by itself but for commas; the whole keeps to trace.schema.json; spans of a track
nest; every step has its phases; the messages of a step, with a header each, and the transfers add up
to the wire_bytes that the step's record has.  --cut: the process was killed, and the "]" is missing.
"""

import json
import os
import sys


def fits(value, schema):
    """JSON schema, the words that trace.schema.json uses."""
    kinds = {"array": list, "object": dict, "string": str, "integer": int, "number": (int, float)}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or isinstance(value, bool)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "minimum" in schema and value < schema["minimum"]:
        return False
    if "minLength" in schema and len(value) < schema["minLength"]:
        return False
    if "minItems" in schema and len(value) < schema["minItems"]:
        return False
    if "oneOf" in schema and sum(fits(value, s) for s in schema["oneOf"]) != 1:
        return False
    if "items" in schema and not all(fits(v, schema["items"]) for v in value):
        return False
    if any(name not in value for name in schema.get("required", [])):
        return False
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False and any(n not in known for n in value):
        return False
    return all(fits(value[n], s) for n, s in known.items() if n in value)


def check_schema(events):
    with open(os.path.join(os.path.dirname(__file__), "trace.schema.json")) as file:
        schema = json.load(file)
    assert fits(events, schema), next(e for e in events if not fits(e, schema["items"]))
    # The checker itself tells wrong from right.
    good = next(e for e in events if e["ph"] == "X")
    for wrong in (
        {**good, "ts": "1"},
        {**good, "ph": "Q"},
        {**good, "more": 1},
        {k: v for k, v in good.items() if k != "dur"},
        {**good, "dur": -1},
    ):
        assert not fits([wrong], schema), wrong


def end(e):
    return e["ts"] + e["dur"]


def check_nesting(spans):
    """Of two spans of a track one holds the other, or they do not overlap; ts has nanoseconds."""
    tracks = {}
    for e in spans:
        tracks.setdefault(e["tid"], []).append(e)
    for track in tracks.values():
        inside = []
        for e in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while inside and end(inside[-1]) <= e["ts"] + 0.002:
                inside.pop()
            assert not inside or end(e) <= end(inside[-1]) + 0.002, (inside[-1], e)
            inside.append(e)


def within(e, outer):
    return outer["ts"] - 0.002 <= e["ts"] and end(e) <= end(outer) + 0.002


def check_step(step, spans, header):
    inside = [e for e in spans if within(e, step) and e is not step]
    begin = next(e for e in inside if e["name"] == "begin")
    names = {e["name"] for e in inside}
    for phase in (
        "begin",
        "compute",
        "feed",
        "compress",
        "exchange",
        "decode",
        "publish",
        "end",
        "transfer",
        "send",
        "recv",
    ):
        assert phase in names, f"step {step['args']['step']} has no {phase}"
    exchange = [e for e in inside if e["name"] == "exchange"]
    for e in inside:
        if e["name"] == "decode":
            assert any(within(e, x) for x in exchange)
    own = [e for e in inside if not within(e, begin)]
    wire = step["args"]["wire_bytes"]
    assert wire > 0
    assert sum(e["args"]["wire_bytes"] for e in own if e["name"] == "transfer") == wire
    sends = [e["args"]["bytes"] for e in own if e["name"] == "send"]
    assert sum(sends) + header * len(sends) == wire, (sum(sends), len(sends), wire)


def main():
    path, rank, header = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cut = "--cut" in sys.argv
    with open(path) as file:
        lines = file.read().split("\n")
    assert lines[0] == "["
    body = [line for line in lines[1:] if line not in ("", "]")]
    assert not body[-1].endswith(","), "the last event has a comma behind it"
    each = [json.loads(line[:-1] if line.endswith(",") else line) for line in body]
    events = json.loads("\n".join(lines) + ("]" if cut else ""))
    assert events == each
    check_schema(events)
    assert {e["pid"] for e in events} == {rank}
    spans = [e for e in events if e["ph"] == "X"]
    check_nesting(spans)
    steps = [e for e in spans if e["name"] == "step"]
    assert len(steps) >= 5, len(steps)
    assert [e["args"]["step"] for e in steps] == list(range(len(steps)))
    for step in steps:
        check_step(step, spans, header)
    named = {e["tid"] for e in events if e["ph"] == "M"}
    assert {e["tid"] for e in spans} <= named
    print(f"{path}: {len(steps)} steps, {len(events)} events")


main()
