"""Where tests' processes come from: one that has imported torch, which takes seconds of a processor, forks the
others.  What is forked runs its script as Python would have, and becomes a child of who asked, who waits
for it.

The process itself, `python nursery.py FD`, computes nothing, so that nothing but its one thread is lost
in a fork.  libweir is loaded by those that it forks."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

PR_SET_CHILD_SUBREAPER = 36


class Forked:
    """A process as subprocess.Popen tells of one, as far as tests ask: .stdin and .stdout are pipes of
    text, and what it says on stderr is told once it has ended."""

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], said: IO[str]) -> None:
        self.pid, self.stdin, self.stdout, self._said = pid, stdin, stdout, said
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() >= until:
                raise TimeoutError(f"process {self.pid} has not ended within {timeout:.0f} s")
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()

    def stop(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait(60)
        for file in (self.stdin, self.stdout, self._said):
            try:
                file.close()
            except BrokenPipeError:  # of what it has not read
                pass


class Nursery:
    def __init__(self) -> None:
        # What is forked is forked twice, and so comes to this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno())],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            pass_fds=[other.fileno()],
        )
        other.close()

    def start(self, script: str, *arguments: str, own: bool = False, **environment: str) -> Forked:
        """`script` is a file, or a module after "-m ".  own: in a session of its own."""
        into, stdin = os.pipe()
        stdout, out = os.pipe()
        said = tempfile.TemporaryFile("w+", errors="replace")
        asked = {
            "command": [script, *arguments],
            "own": own,
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", **environment},
        }
        socket.send_fds(self._socket, [json.dumps(asked).encode()], [into, out, said.fileno()])
        os.close(into)
        os.close(out)
        pid = self._socket.recv(32)
        assert pid, "the nursery has ended"
        return Forked(int(pid), open(stdin, "w"), open(stdout), said)

    def stop(self) -> None:
        self._socket.close()
        self._process.wait(60)


def _serve(requests: socket.socket) -> Any:
    """Answers requests with the number of the process that it forks; in that it returns the request."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            os._exit(0)
        told, tell = os.pipe()
        between = os.fork()
        if between:
            os.waitpid(between, 0)  # before anybody waits for its child
            requests.send(os.read(told, 32))
            for file in (*files, told, tell):
                os.close(file)
            continue
        pid = os.fork()
        if pid:
            os.write(tell, str(pid).encode())
            os._exit(0)
        for file in (told, tell):
            os.close(file)
        requests.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return json.loads(message)


if __name__ == "__main__":
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import torch._dynamo  # as the first optimizer does
    import torch.distributed.fsdp
    import torch.distributed.run  # noqa: F401

    gc.freeze()  # else every process would copy what is common to all as soon as it collects garbage
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked["own"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["command"]
    # From here on this module is the script; names that it does not expect are those above.
    if sys.argv[0].startswith("-m "):
        __file__ = sys.modules[sys.argv[0][3:]].__file__
    else:
        __file__ = sys.argv[0]
        sys.path[0] = str(Path(__file__).parent)
    exec(compile(Path(__file__).read_text(), __file__, "exec", dont_inherit=True), globals())
