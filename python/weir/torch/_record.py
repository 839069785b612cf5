"""What a training under attach(..., record=FOLDER) leaves behind, as `weir run` does
(docs/reference/runs.md): steps.csv and summary.json beside the library's decisions.jsonl."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from ..session import StepInfo

_COLUMNS = (
    "step,epoch,trial,plan,codec,cr,collective,compute_ms,compress_ms,comm_ms,overhead_ms,"
    "predicted_comm_ms,wire_bytes,gain,loss,latency_ms,bandwidth_gbps,set_latency_ms,"
    "set_bandwidth_gbps,elapsed_s,accuracy,goodput_gbps,test_loss\n"
)


def _known(value: float, scale: float) -> str:
    return f"{value * scale:.6g}" if math.isfinite(value) and value > 0 else ""


class Record:
    """A folder that rank 0 writes.  Steps go to a hidden file as they end; write() makes the files
    of it that others read, each renamed when it is complete."""

    def __init__(self, folder: str | os.PathLike[str], about: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / ".steps.csv.tmp"
        self._rows = open(self._path, "w", encoding="ascii")
        self._rows.write(_COLUMNS)
        self.about = about  # keys of summary.json that do not come from steps
        self._began = time.monotonic()
        self._plan: str | None = None
        self._elapsed = 0.0
        self._sums = dict.fromkeys(("comm_s", "compress_s", "compute_s", "overhead_s"), 0.0)
        self._counts = dict.fromkeys(("steps", "switches", "wire_bytes"), 0)
        self._trials_s = 0.0

    def step(self, info: StepInfo, loss: float | None) -> None:
        before, self._elapsed = self._elapsed, time.monotonic() - self._began
        for name in self._sums:
            self._sums[name] += getattr(info, name)
        self._counts["wire_bytes"] += info.wire_bytes
        if info.trial:
            self._trials_s += self._elapsed - before
        else:
            self._counts["steps"] += 1
            self._counts["switches"] += self._plan not in (None, info.plan)
            self._plan = info.plan
        told = "" if loss is None or not math.isfinite(loss) else f"{loss:.6g}"
        self._rows.write(
            f"{info.step},0,{int(info.trial)},{info.plan},{info.codec},{info.cr:.6g},"
            f"{info.collective},{info.compute_s * 1e3:.6g},{info.compress_s * 1e3:.6g},"
            f"{info.comm_s * 1e3:.6g},{info.overhead_s * 1e3:.6g},"
            f"{_known(info.predicted_comm_s, 1e3)},{info.wire_bytes},{info.gain:.6g},{told},"
            f"{_known(info.latency_s, 1e3)},{_known(info.bandwidth_bytes_s, 8e-9)},,,"
            f"{self._elapsed:.6f},,{_known(info.goodput_bytes_s, 8e-9)},\n"
        )

    def write(self) -> None:
        self._rows.flush()
        copy = self.folder / ".steps.csv.new"
        shutil.copyfile(self._path, copy)
        copy.rename(self.folder / "steps.csv")
        summary = {
            **self.about,
            "elapsed_s": self._elapsed,
            "trials_s": self._trials_s,
            "trial_share": self._trials_s / self._elapsed if self._elapsed else 0.0,
            **self._sums,
            **self._counts,
        }
        part = self.folder / ".summary.json.new"
        part.write_text(json.dumps(summary) + "\n")
        part.rename(self.folder / "summary.json")

    def close(self) -> None:
        self.write()
        self._rows.close()
        self._path.unlink()


def draw(folder: str | os.PathLike[str]) -> Path:
    """Run `weir report`, which is a program of Weir's build and none of the wheel."""
    command = os.environ.get("WEIR_COMMAND") or shutil.which("weir")
    if command is None:
        raise RuntimeError(
            f"there is no command `weir` on the path, and WEIR_COMMAND names none; it comes with "
            f"Weir's own build (README.md), and `weir report {folder}` draws the report anywhere"
        )
    done = subprocess.run([command, "report", os.fspath(folder)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"{command} report ended with {done.returncode}")
    return Path(folder) / "report.html"
