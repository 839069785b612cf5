"""Where the ranks of a process group meet: agreed on over the group itself, so that no address, port
or secret has to be typed in."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import secrets
import socket
from typing import Any

import torch
import torch.distributed as dist

from ..session import Session

logger = logging.getLogger("weir")

# The others of a group that evaluates, or writes a checkpoint, on one rank alone wait for it.  A
# rank that dies is noticed at once, whatever this is.
TIMEOUT_S = 1800.0


# What follows is torch's all_gather_object() and broadcast_object_list() without numpy, which these
# need and torch does not bring.


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Of a tensor of bytes."""
    held = tensor.cpu().contiguous()
    return ctypes.string_at(held.data_ptr(), held.numel()) if held.numel() else b""


def _packed(value: Any, group: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Pickled, and how long that is, in memory that the group takes."""
    backend = str(dist.get_backend(group))
    device = torch.device("cpu")
    if "nccl" in backend and "cpu" not in backend:
        device = torch.device("cuda", torch.cuda.current_device())
    data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(device)
    return data, torch.tensor([data.numel()], device=device)


def gathered(mine: Any, group: Any) -> list[Any]:
    """What each rank of the group has handed over; collective."""
    data, size = _packed(mine, group)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    lengths = [int(size) for size in sizes]
    padded = torch.nn.functional.pad(data, (0, max(lengths) - data.numel()))
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded, group=group)
    return [pickle.loads(bytes_of(part[:n])) for part, n in zip(parts, lengths)]


def told_by_first(value: Any, group: Any) -> Any:
    """What the group's rank 0 has handed over; collective."""
    first = 0 if group is None else dist.get_global_rank(group, 0)
    data, size = _packed(value, group)
    dist.broadcast(size, src=first, group=group)
    if dist.get_rank() != first:
        data = data.new_empty(int(size))
    dist.broadcast(data, src=first, group=group)
    return pickle.loads(bytes_of(data))


def _network() -> str:
    """Equal on processes that share one network stack: their loopback is the same."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"


def _addresses(several: bool) -> list[str]:
    """Where rank 0 could listen, best first; several: other ranks' networks are not its own."""
    if not several:
        return ["127.0.0.1"]
    found = []
    master = os.environ.get("MASTER_ADDR")
    for name in (master, socket.gethostname()):
        try:
            if name:
                found.append(socket.gethostbyname(name))
        except OSError:
            continue
    if master:
        # Where rank 0 is not where the store is: the address that reaches the store.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((master, 9))
                found.append(probe.getsockname()[0])
            except OSError:
                pass
    return [a for a in found if not a.startswith("127.")]


def _listen(addresses: list[str]) -> socket.socket:
    """At the first address that is this machine's own, at a port that the kernel chooses."""
    for address in addresses:
        try:
            return socket.create_server((address, 0), backlog=128)
        except OSError:
            continue
    raise RuntimeError(
        f"rank 0 finds no address of its own that other machines could reach (tried: "
        f"{', '.join(addresses) or 'none'}); hand one to attach(), as bind_address=..., or set "
        "MASTER_ADDR to one"
    )


def open_session(group: Any, options: dict[str, Any]) -> Session:
    """A session, not yet started, of the ranks of a process group; collective."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    overlap = options.get("policy", "weir") == "weir"  # the others plan no buckets
    options = {"transport": "auto", "timeout_s": TIMEOUT_S, "overlap": overlap, **options}
    if (
        ranks == 1
        or "rendezvous" in options
        or options["transport"] in ("mpi", "shm+mpi", "inproc")
    ):
        return Session(rank, ranks, **options)
    networks = gathered(_network(), group)
    server: socket.socket | None = None
    told: Any = None
    if rank == 0:
        try:
            bind = options.get("bind_address")
            server = _listen([bind] if bind else _addresses(len(set(networks)) > 1))
            told = (*server.getsockname(), secrets.token_hex(16), secrets.randbits(63))
        except (OSError, RuntimeError) as error:
            told = str(error)
    told = told_by_first(told, group)
    if isinstance(told, str):
        raise RuntimeError(told)
    host, port, secret, job = told
    options["rendezvous"] = f"{host}:{port}"
    options.setdefault("job_id", job)
    if not any(key in options for key in ("secret", "secret_file")):
        options["secret"] = secret
    if server is not None and options["transport"] in ("tcp", "mixed", "auto"):
        # The session takes the descriptor over when it starts.
        options["listener"] = server.fileno()
    session = Session(rank, ranks, **options)
    if server is not None:
        if "listener" in options:
            server.detach()
        else:
            server.close()
    return session
