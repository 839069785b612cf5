"""An MLP learns Fashion-MNIST under DistributedDataParallel, its gradients exchanged by Weir.

torchrun --nproc-per-node 4 examples/train_ddp.py

Without the data (Debian's dataset-fashion-mnist) it learns images that it makes up, and says so.
--plain leaves Weir out, to compare.
"""

import argparse
import gzip
import os
import time

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="images a worker and step")
    parser.add_argument("--policy", default="weir", help="Weir's policy (default: weir)")
    parser.add_argument("--plain", action="store_true", help="without Weir, to compare")
    arguments = parser.parse_args()

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

    begin = time.monotonic()
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(epoch))
        for batch in order[rank::workers].split(arguments.batch)[:-1]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(train_x[batch]), train_y[batch])
            if not arguments.plain:
                weir.torch.report(loss)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = (model.module(test_x).argmax(1) == test_y).float().mean().item()
        if rank == 0:
            how = "plain DDP" if arguments.plain else attached.session.plan
            seconds = time.monotonic() - begin
            print(f"epoch {epoch + 1}: {100 * right:.1f} % right after {seconds:.1f} s ({how})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
