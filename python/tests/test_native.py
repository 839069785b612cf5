"""The layouts that _native.py declares, against a C compiler's of the headers."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weir import _native

SOURCE = Path(__file__).parents[2]
STRUCTS = {
    "weir_plan": _native.Plan,
    "weir_step_info": _native.StepInfo,
    "weir_state_hooks": _native.StateHooks,
    "weir_log_line": _native.LogLine,
}


def test_layouts_are_those_of_the_headers(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    lines = []
    for name, kind in STRUCTS.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "{name}");')
        for field, _ in kind._fields_:
            at, size = getattr(kind, field).offset, getattr(kind, field).size
            lines.append(
                f"_Static_assert(offsetof({name}, {field}) == {at} && "
                f'sizeof((({name} *)0)->{field}) == {size}, "{name}.{field}");'
            )
    lines.append(f'_Static_assert(WEIR_PLAN_TEXT_MAX == {_native.PLAN_TEXT_MAX}, "plans");')
    lines.append(
        f'_Static_assert(WEIR_COLLECTIVE_TEXT_MAX == {_native.COLLECTIVE_TEXT_MAX}, "names");'
    )
    lines.append(f'_Static_assert(WEIR_E_NONFINITE == {_native.NONFINITE}, "not finite");')
    lines.append(f'_Static_assert(WEIR_E_TIMEOUT == {_native.GROUP_LOST}, "lost");')
    unit = tmp_path / "layout.c"
    unit.write_text("#include <weir/weir.h>\n" + "\n".join(lines) + "\n")
    done = subprocess.run(
        [compiler, "-std=c11", "-fsyntax-only", f"-I{SOURCE / 'include'}", str(unit)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_functions_are_declared_in_the_headers():
    text = "".join(p.read_text() for p in (SOURCE / "include" / "weir").glob("*.h"))
    for name in _native._FUNCTIONS:
        assert re.search(rf"\b{name}\(", text), name


def test_version_is_that_of_the_headers():
    header = (SOURCE / "include" / "weir" / "weir.h").read_text()
    assert f'#define WEIR_VERSION "{_native.HEADERS}"' in header
    assert _native.library.weir_version().decode() == _native.HEADERS


def test_a_library_that_is_missing_is_named(tmp_path):
    import sys

    done = subprocess.run(
        [sys.executable, "-c", "import weir"],
        env={**os.environ, "WEIR_LIBRARY": str(tmp_path / "none.so")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "none.so" in done.stderr and "pip install ./python" in done.stderr


def test_every_option_is_in_the_guide():
    header = (SOURCE / "include" / "weir" / "weir.h").read_text()
    struct = re.search(r"typedef struct weir_options \{(.*?)\n\} weir_options;", header, re.S)[1]
    code = re.sub(r"/\*.*?\*/", "", struct, flags=re.S)
    fields = [re.findall(r"\w+", part)[-1] for part in re.split(r"[;,]", code) if part.strip()]
    # Which the binding sets itself, and which weir_options_set() does not take.
    ours = {"struct_size", "rank", "world_size", "stream"}
    ours |= {"virtual_network", "virtual_user", "virtual_exchange"}
    ours |= {"max_ranks"}  # nobody joins a group of Python's
    assert len(fields) > 30 and ours < set(fields)
    guide = (SOURCE / "docs" / "guide" / "pytorch.md").read_text()
    rows = [row.split("|")[1] for row in guide.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert not set(fields) - ours - named


def test_every_argument_of_attach_is_in_the_guide():
    torch = pytest.importorskip("weir.torch")
    import inspect

    guide = (SOURCE / "docs" / "guide" / "pytorch.md").read_text()
    for name in inspect.signature(torch.attach).parameters:
        assert name in ("model", "options") or re.search(rf"^\| .*`{name}`", guide, re.M), name
