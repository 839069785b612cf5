"""An MLP learns Fashion-MNIST under DistributedDataParallel, its gradients exchanged by Weir.

torchrun --nproc-per-node 4 examples/train_ddp.py

Without the data (Debian's dataset-fashion-mnist) it learns images that it makes up, and says so.
--plain leaves Weir out, to compare. With --checkpoint FOLDER a restarted training goes on where it was;
the variable keeps torchrun from handing restarted workers the addresses of those that are gone:

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \\
    torchrun --nproc-per-node 4 --max-restarts 3 examples/train_ddp.py --checkpoint out/checkpoint
"""

import argparse
import gzip
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weir.torch

DATA = "/usr/share/datasets/fashion-mnist"


def read(name: str, header: int) -> torch.Tensor:
    with gzip.open(os.path.join(DATA, name)) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header)


def fashion_mnist() -> tuple[torch.Tensor, ...]:
    def images(name: str) -> torch.Tensor:
        return read(name, 16).view(-1, 784).float() / 255

    return (
        images("train-images-idx3-ubyte.gz"),
        read("train-labels-idx1-ubyte.gz", 8).long(),
        images("t10k-images-idx3-ubyte.gz"),
        read("t10k-labels-idx1-ubyte.gz", 8).long(),
    )


def made_up() -> tuple[torch.Tensor, ...]:
    """Ten classes, each a pattern of its own under noise."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.rand(10, 784, generator=generator)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 10, (count,), generator=generator)
        return patterns[labels] + torch.randn(count, 784, generator=generator), labels

    return (*draw(60000), *draw(10000))


class Checkpoints:
    """One file a rank and step, as what error feedback keeps back is of each rank; the newest two
    steps.  A group goes on from the newest that all of its ranks have."""

    def __init__(self, folder: str, parts: dict) -> None:
        self.folder, self.parts = Path(folder), parts
        self.folder.mkdir(parents=True, exist_ok=True)

    def steps(self) -> list[int]:
        return sorted(
            int(f.stem.split("-")[0]) for f in self.folder.glob(f"*-{dist.get_rank()}.pt")
        )

    def save(self, step: int) -> None:
        file = self.folder / f"{step}-{dist.get_rank()}.pt"
        torch.save({n: p.state_dict() for n, p in self.parts.items()}, file.with_suffix(".new"))
        file.with_suffix(".new").rename(file)
        for old in self.steps()[:-2]:
            (self.folder / f"{old}-{dist.get_rank()}.pt").unlink()

    def load(self) -> int:
        """The step to go on with."""
        mine = torch.tensor([0, 0, *self.steps()][-2:])
        theirs = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(theirs, mine)
        common = set.intersection(*(set(steps.tolist()) for steps in theirs)) - {0}
        if not common:
            return 0
        state = torch.load(self.folder / f"{max(common)}-{dist.get_rank()}.pt")
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        return max(common)


def main() -> None:
    parser = argparse.ArgumentParser(
        usage="torchrun --nproc-per-node N %(prog)s [options]",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument("--epochs", type=int, default=2, help="times through the images (2)")
    parser.add_argument("--batch", type=int, default=32, help="images a worker and step (32)")
    parser.add_argument(
        "--policy",
        default="weir",
        help="Weir's (weir), such as fixed:qsgd:0.125:sra or fixed:topk:0.01:ag",
    )
    parser.add_argument("--checkpoint", metavar="FOLDER", help="save there, and go on from there")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints (100)")
    parser.add_argument("--plain", action="store_true", help="without Weir, to compare")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("it is started by torchrun, which says how many workers there are")

    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    # Workers of one machine share its processors.
    local = int(os.environ.get("LOCAL_WORLD_SIZE", workers))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // local))
    torch.manual_seed(1)

    if os.path.isdir(DATA):
        train_x, train_y, test_x, test_y = fashion_mnist()
    else:
        train_x, train_y, test_x, test_y = made_up()
        if rank == 0:
            print(f"no {DATA} (Debian: dataset-fashion-mnist); training on made-up images")

    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if not arguments.plain:
        attached = weir.torch.attach(model, optimizer, policy=arguments.policy)

    checkpoints, step = None, 0
    if arguments.checkpoint:
        parts = {"model": model.module, "optimizer": optimizer}
        if not arguments.plain:
            parts["weir"] = attached
        checkpoints = Checkpoints(arguments.checkpoint, parts)
        step = checkpoints.load()
        if rank == 0 and step:
            print(f"going on from step {step}")

    begin = time.monotonic()
    an_epoch = len(train_x) // workers // arguments.batch
    while step < arguments.epochs * an_epoch:
        epoch, at = divmod(step, an_epoch)
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(epoch))
        mine = order[rank::workers][at * arguments.batch : an_epoch * arguments.batch]
        batches = mine.split(arguments.batch)
        for batch in batches if arguments.plain else weir.torch.batches(batches, model):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(train_x[batch]), train_y[batch])
            loss.backward()
            optimizer.step()
            if not arguments.plain and attached.trial:
                continue  # it will be rolled back
            step += 1
            if checkpoints and step % arguments.every == 0:
                checkpoints.save(step)
        if rank == 0:
            with torch.no_grad():
                right = (model.module(test_x).argmax(1) == test_y).float().mean().item()
            how = "plain DDP" if arguments.plain else attached.session.plan
            seconds = time.monotonic() - begin
            print(f"epoch {epoch + 1}: {100 * right:.1f} % right after {seconds:.1f} s ({how})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
