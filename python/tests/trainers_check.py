"""weir.torch under trainers that have the loop, and under torch.compile(): two ranks, over gloo, beside the
same training without Weir.

    PYTHONPATH=python WEIR_LIBRARY=.../libweir.so python3 python/tests/trainers_check.py [CASE ...]

A plain script.  Each case has two processes of its own; what it trains is tiny, made from random
numbers, and computed by processors.  Cases whose package is not installed are skipped, and said to be:
accelerate, transformers, lightning.  Last comes a summary; exit code 1 if a case has failed, 77 where
all were skipped.  The callbacks are those of docs/guide/pytorch.md."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import common

RANKS = 2
CASE_S = 600.0  # the longest that a case may take
STEPS = 20
EXACT = "fixed:none:1:dense-ring"
LOSSY = "fixed:topk:0.05:ag"
DIES = 5  # the step in which rank 1 is killed, of cases "lost"

if "RANK" in os.environ:  # the parent has no need of torch
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    import weir.torch

    class Images(nn.Module):
        """Of about 4 MB, so that DDP has several buckets, between which torch.compile cuts a graph."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first = nn.Conv2d(3, 8, 3)
            self.norm = nn.BatchNorm2d(8)
            self.wide = nn.Linear(8 * 36, 2048)
            self.inner = nn.Linear(2048, 200)
            self.last = nn.Linear(200, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.norm(self.first(x))).flatten(1)
            return self.last(torch.relu(self.inner(torch.relu(self.wide(x)))))

    def images(count: int) -> Any:
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(count, 3, 8, 8, generator=generator)
        return torch.utils.data.TensorDataset(
            x, torch.randint(0, 10, (count,), generator=generator)
        )


def rank() -> int:
    return int(os.environ["RANK"])


class Told:
    """The losses that the session is told, and the lines of the logger `weir`."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.lines: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("weir").addHandler(handler)

    def listen(self, attached: Any) -> None:
        self.losses.clear()
        report = attached.session.report_loss
        attached.session.report_loss = lambda loss: (self.losses.append(loss), report(loss))


told: Told
finds = True  # losses are those of the model


def parameters(model: Any) -> list[Any]:
    return [p.detach().clone() for p in model.parameters()]


def same(a: list[Any], b: list[Any]) -> None:
    """Two ranks' sums are the same in either order, so that nothing is rounded differently."""
    far = max((p - q).abs().max().item() for p, q in zip(a, b))
    assert far == 0, f"parameters differ by {far}"


def all_policies(train: Callable[..., tuple[list[Any], list[float]]], **how: Any) -> None:
    """A training without Weir, and under a policy that computes the same; one under policy weir, which
    says once that it has no trials.  `train` tells the parameters at the end, and the losses."""
    plain, _ = train(None, **how)
    ours, losses = train(EXACT, **how)
    same(plain, ours)
    assert told.losses == losses, f"{told.losses} of {losses}"
    told.lines.clear()
    _, losses = train("weir", **how)
    assert told.losses == losses, f"{told.losses} of {losses}"
    said = [line for line in told.lines if "no trials" in line]
    assert len(said) == (rank() == 0), told.lines


# --- torch.compile -----------------------------------------------------------------------------


def compiled(policy: str | None, backend: str, way: str) -> tuple[list[Any], list[float]]:
    torch._dynamo.reset()
    module = Images()
    if way == "module":
        module = torch.compile(module, backend=backend)
    model = called = DDP(module, bucket_cap_mb=1.1)
    if way != "module":
        called = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    attached, losses = None, []
    if policy:
        attached = weir.torch.attach(
            called if way == "compiled" else model, optimizer, policy=policy
        )
        told.listen(attached)
    data = images(STEPS * RANKS * 4)
    for step in range(STEPS):
        at = 4 * (RANKS * step + rank())
        x, y = data[at : at + 4]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(called(x), y)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    if attached:
        attached.close()
    return parameters(model), losses


def compile_with(backend: str) -> None:
    """The module before DDP, DDP before attach(), and what torch.compile() returns handed to it."""
    dist.init_process_group("gloo")
    for way in ("module", "ddp", "compiled"):
        all_policies(compiled, backend=backend, way=way)
    dist.destroy_process_group()


# --- accelerate --------------------------------------------------------------------------------


def accelerated(
    policy: str | None,
    precision: str = "no",
    accumulate: int = 1,
    trials: Any = None,
    folder: str = "",
    steps: int = STEPS,
    resume: bool = False,
) -> tuple[list[Any], list[float]]:
    import accelerate

    accelerator = accelerate.Accelerator(
        cpu=True, mixed_precision=precision, gradient_accumulation_steps=accumulate
    )
    model = Images()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    loader = torch.utils.data.DataLoader(images(STEPS * accumulate * RANKS * 4), batch_size=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    attached: Any = None
    if policy:
        attached = weir.torch.attach(
            model, optimizer, scheduler=scheduler, scaler=accelerator.scaler, policy=policy
        )
        if trials:
            attached.session.begin = common.tried(attached, trials)
        told.listen(attached)
    state = f"{folder}/weir-{accelerator.process_index}.pt"
    if resume:
        accelerator.load_state(folder)
        attached.load_state_dict(torch.load(state))
        loader = accelerate.skip_first_batches(loader, STEPS // 2 * accumulate)
    losses, done = [], 0
    taken = loader if trials is None else weir.torch.batches(loader, model)
    for x, y in taken:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                # Where the last backward pass began.
                losses.append((loss / accumulate).item())
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if not (attached and attached.trial):
            done += accelerator.sync_gradients
        if done == steps:
            break
    if folder and not resume:
        accelerator.save_state(folder)
        torch.save(attached.state_dict(), state)
        accelerator.wait_for_everyone()
    if attached:
        attached.close()
    return parameters(model), losses


def accelerate_plain() -> None:
    all_policies(accelerated)


def accelerate_accumulates() -> None:
    all_policies(accelerated, accumulate=4)


def accelerate_bf16() -> None:
    all_policies(accelerated, precision="bf16")


def accelerate_tries() -> None:
    """A loop over batches() has trials, which leave nothing behind."""
    for accumulate in (1, 3):
        without, _ = accelerated(EXACT, accumulate=accumulate)
        same(without, accelerated(EXACT, accumulate=accumulate, trials=((2, 5), (9, 4)))[0])
    told.lines.clear()
    accelerated("weir", trials=())
    assert not any("no trials" in line for line in told.lines), told.lines


def accelerate_resumes(folder: str) -> None:
    whole, _ = accelerated(LOSSY)
    accelerated(LOSSY, folder=folder, steps=STEPS // 2)
    same(whole, accelerated(LOSSY, folder=folder, resume=True)[0])


def accelerate_lost() -> None:
    dies_at(torch.optim.AdamW)
    accelerated("weir")


def dies_at(kind: Any) -> None:
    """Rank 1 is killed when its optimizer has made some steps."""
    step, count = kind.step, 0

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count == DIES and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments, **named)

    kind.step = counted


# --- transformers ------------------------------------------------------------------------------


def hugging_face(
    policy: str | None,
    folder: str,
    kind: str = "gpt2",
    resume: bool = False,
    times: int = 1,
    **options: Any,
) -> tuple[list[Any], list[float]]:
    import transformers

    class Exchange(transformers.TrainerCallback):
        attached: Any = None

        def __init__(self, trainer: Any) -> None:
            self.trainer = trainer

        def file(self, args: Any, state: Any) -> str:
            return f"{args.output_dir}/checkpoint-{state.global_step}/weir-{args.process_index}.pt"

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            t = self.trainer
            if self.attached is None:
                self.attached = weir.torch.attach(
                    t.model_wrapped, t.optimizer, scaler=t.accelerator.scaler, policy=policy
                )
                told.listen(self.attached)
            if state.global_step:
                self.attached.load_state_dict(torch.load(self.file(args, state)))
                told.listen(self.attached)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.save(self.attached.state_dict(), self.file(args, state))

    class Sentences(torch.utils.data.Dataset):  # type: ignore[type-arg]
        words = torch.randint(0, 60, (1000, 16), generator=torch.Generator().manual_seed(3))

        def __len__(self) -> int:
            return len(self.words)

        def __getitem__(self, at: int) -> dict[str, Any]:
            label = self.words[at] if kind == "gpt2" else self.words[at].sum() % 2
            return {"input_ids": self.words[at], "labels": label}

    losses: list[float] = []

    class Trainer(transformers.Trainer):
        def compute_loss(self, model: Any, *arguments: Any, **named: Any) -> Any:
            found = super().compute_loss(model, *arguments, **named)
            if model.training and self.accelerator.sync_gradients:
                # As training_step() has it, which divides what a model does not by the number of parts.
                alone = self.model_accepts_loss_kwargs
                losses.append(
                    (found if alone else found / self.args.gradient_accumulation_steps).item()
                )
            return found

    torch.manual_seed(1)
    small = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 1}
    if kind == "gpt2":
        model: Any = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_positions=16, n_embd=32, n_layer=2, n_head=2, **small)
        )
    else:
        model = transformers.BertForSequenceClassification(
            transformers.BertConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                **small,
            )
        )
    settings = {
        "per_device_train_batch_size": 4,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "max_grad_norm": 0.5,
        "use_cpu": True,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "ddp_find_unused_parameters": False,
    }
    trainer = Trainer(
        model,
        transformers.TrainingArguments(folder, **(settings | options)),
        train_dataset=Sentences(),
        eval_dataset=Sentences(),
    )
    if policy:
        trainer.add_callback(Exchange(trainer))
    for _ in range(times):
        trainer.train(
            resume_from_checkpoint=f"{folder}/checkpoint-{STEPS // 2}" if resume else None
        )
    return parameters(model), losses


def transformers_gpt2(folder: str) -> None:
    all_policies(hugging_face, folder=folder)


def transformers_twice(folder: str) -> None:
    """train() that is called again goes on with the same DDP."""
    all_policies(hugging_face, folder=folder, times=2)


def transformers_bert(folder: str) -> None:
    """Unused parameters are looked for, as is the Trainer's default."""
    all_policies(hugging_face, folder=folder, kind="bert", ddp_find_unused_parameters=None)


def transformers_accumulates(folder: str) -> None:
    """And evaluates in the middle."""
    evaluates = {"eval_strategy": "steps", "eval_steps": 7, "eval_on_start": True}
    for kind in ("gpt2", "bert"):
        all_policies(
            hugging_face, folder=folder, kind=kind, gradient_accumulation_steps=4, **evaluates
        )


def transformers_bf16(folder: str) -> None:
    all_policies(hugging_face, folder=folder, bf16=True)


def transformers_compiled(folder: str) -> None:
    all_policies(hugging_face, folder=folder, torch_compile=True, torch_compile_backend="aot_eager")


def transformers_resumes(folder: str) -> None:
    saves = {"save_strategy": "steps", "save_steps": STEPS // 2}
    whole, _ = hugging_face(LOSSY, folder, **saves)
    same(whole, hugging_face(LOSSY, folder, resume=True)[0])


def transformers_lost(folder: str) -> None:
    dies_at(torch.optim.AdamW)
    hugging_face("weir", folder)


# --- lightning ---------------------------------------------------------------------------------


def lightning(
    policy: str | None,
    folder: str,
    resume: bool = False,
    compiles: bool = False,
    save: bool = False,
    **options: Any,
) -> tuple[list[Any], list[float]]:
    import lightning as L

    saves: Any = None
    if save:
        saves = L.pytorch.callbacks.ModelCheckpoint(folder, "{epoch}", save_top_k=-1)

    class Exchange(L.Callback):
        states: Any = None

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.attached = weir.torch.attach(
                trainer.model,
                trainer.optimizers[0],
                scaler=getattr(trainer.precision_plugin, "scaler", None),
                policy=policy,
            )
            told.listen(self.attached)
            if self.states:
                self.attached.load_state_dict(self.states[trainer.global_rank])
                told.listen(self.attached)

        def state_dict(self) -> dict[str, Any]:
            states: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(states, self.attached.state_dict())
            return {"states": states}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.states = state["states"]

    losses: list[float] = []

    class Learns(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Images()

        def training_step(self, batch: Any, number: int) -> Any:
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            if (number + 1) % parts == 0:
                losses.append((loss / parts).item())
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            x, y = batch
            self.log("validation", nn.functional.cross_entropy(self.net(x), y), sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), 1e-3)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    parts = options.get("accumulate_grad_batches", 1)
    module = Learns()
    trainer = L.Trainer(
        **{
            "accelerator": "cpu",
            "devices": RANKS,
            "strategy": "ddp",
            "use_distributed_sampler": False,
            "max_steps": STEPS,
            "gradient_clip_val": 0.5,
            "limit_val_batches": 0,
            "logger": False,
            "enable_checkpointing": save,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "callbacks": ([Exchange()] if policy else []) + ([saves] if saves else []),
            **options,
        }
    )
    count = STEPS // 2 * parts * RANKS * 4  # of an epoch, after which it saves
    data = images(count)
    if save or resume:  # batches that are alike, as Lightning 2.6 goes on with others
        data = torch.utils.data.Subset(data, [at % (RANKS * 4) for at in range(count)])
    loaders = [
        torch.utils.data.DataLoader(
            data,
            batch_size=4,
            sampler=torch.utils.data.DistributedSampler(data, RANKS, rank(), shuffle=False),
        )
        for _ in range(2)
    ]
    trainer.fit(
        torch.compile(module, backend="aot_eager") if compiles else module,
        *loaders,
        ckpt_path=f"{folder}/epoch=0.ckpt" if resume else None,
    )
    return parameters(module), losses


def lightning_plain(folder: str) -> None:
    """Validates in the middle, and before it begins."""
    all_policies(lightning, folder=folder, limit_val_batches=2, val_check_interval=4)


def lightning_accumulates(folder: str) -> None:
    all_policies(lightning, folder=folder, accumulate_grad_batches=4)


def lightning_bf16(folder: str) -> None:
    all_policies(lightning, folder=folder, precision="bf16-mixed")


def lightning_compiled(folder: str) -> None:
    all_policies(lightning, folder=folder, compiles=True)


def lightning_resumes(folder: str) -> None:
    whole, _ = lightning(LOSSY, folder, save=True)
    same(whole, lightning(LOSSY, folder, resume=True)[0])


def lightning_fabric() -> None:
    """What Fabric hands out wraps the model and the optimizer.  There can be trials, too."""

    def train(policy: str | None, trials: Any = None) -> tuple[list[Any], list[float]]:
        import lightning as L

        fabric = L.Fabric(accelerator="cpu", devices=RANKS, strategy="ddp")
        fabric.launch()
        model = Images()
        model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-3))
        loader = fabric.setup_dataloaders(
            torch.utils.data.DataLoader(images(STEPS * RANKS * 4), batch_size=4)
        )
        losses = []
        if policy:
            attached = weir.torch.attach(model, optimizer, policy=policy)
            if trials:
                attached.session.begin = common.tried(attached, trials)
            told.listen(attached)
        for x, y in weir.torch.batches(loader, model) if trials else loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            losses.append(loss.item())
            fabric.backward(loss)
            optimizer.step()
        if policy:
            attached.close()
        return parameters(model), losses

    all_policies(train)
    same(train(EXACT)[0], train(EXACT, trials=((2, 5), (9, 4)))[0])


def lightning_lost(folder: str) -> None:
    dies_at(torch.optim.AdamW)
    lightning("weir", folder)


# --- the cases ---------------------------------------------------------------------------------

# What each takes, and its arguments.
CASES: dict[str, tuple[str, Callable[..., None], dict[str, str]]] = {
    "compile eager": ("torch", compile_with, {"backend": "eager"}),
    "compile aot_eager": ("torch", compile_with, {"backend": "aot_eager"}),
    "compile inductor": ("torch", compile_with, {"backend": "inductor"}),
    "accelerate": ("accelerate", accelerate_plain, {}),
    "accelerate accumulates": ("accelerate", accelerate_accumulates, {}),
    "accelerate bf16": ("accelerate", accelerate_bf16, {}),
    "accelerate tries": ("accelerate", accelerate_tries, {}),
    "accelerate resumes": ("accelerate", accelerate_resumes, {"folder": ""}),
    "accelerate lost": ("accelerate", accelerate_lost, {}),
    "transformers gpt2": ("transformers", transformers_gpt2, {"folder": ""}),
    "transformers twice": ("transformers", transformers_twice, {"folder": ""}),
    "transformers bert": ("transformers", transformers_bert, {"folder": ""}),
    "transformers accumulates": ("transformers", transformers_accumulates, {"folder": ""}),
    "transformers bf16": ("transformers", transformers_bf16, {"folder": ""}),
    "transformers compiled": ("transformers", transformers_compiled, {"folder": ""}),
    "transformers resumes": ("transformers", transformers_resumes, {"folder": ""}),
    "transformers lost": ("transformers", transformers_lost, {"folder": ""}),
    "lightning": ("lightning", lightning_plain, {"folder": ""}),
    "lightning accumulates": ("lightning", lightning_accumulates, {"folder": ""}),
    "lightning bf16": ("lightning", lightning_bf16, {"folder": ""}),
    "lightning compiled": ("lightning", lightning_compiled, {"folder": ""}),
    "lightning resumes": ("lightning", lightning_resumes, {"folder": ""}),
    "lightning fabric": ("lightning", lightning_fabric, {}),
    "lightning lost": ("lightning", lightning_lost, {"folder": ""}),
}


def serve(name: str, folder: str) -> None:
    """A rank of a case."""
    global told
    told = Told()
    _, function, arguments = CASES[name]
    function(**{key: value or folder for key, value in arguments.items()})
    print("well", flush=True)


def started(name: str, port: int, folder: str) -> list[Any]:
    """As torchrun would, which would end the one when the other is lost."""
    return [
        subprocess.Popen(
            [sys.executable, __file__, name, folder],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "GROUP_RANK": "0",
                "WORLD_SIZE": str(RANKS),
                "LOCAL_WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RUN_ID": "trainers_check",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]


def outcome(name: str) -> str:
    """ "ok", or what went wrong."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    folder = tempfile.mkdtemp()
    ranks = started(name, port, folder)
    said = []
    try:
        until = time.monotonic() + CASE_S
        for process in ranks:
            said.append(process.communicate(timeout=max(1.0, until - time.monotonic()))[0])
    except subprocess.TimeoutExpired:
        return f"FAILED: has not ended within {CASE_S:.0f} s"
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.communicate()
        shutil.rmtree(folder, ignore_errors=True)
    codes = [process.returncode for process in ranks]
    if name.endswith("lost"):
        # Weir notices it first, or gloo, by which DDP broadcasts buffers.
        names = "rank 1" in said[0] or "gloo" in said[0]
        good = codes[0] > 0 and codes[1] == -signal.SIGKILL and names
    else:
        good = codes == [0] * RANKS and all(words.endswith("well\n") for words in said)
    if good:
        return "ok"
    print("\n".join(words[-4000:] for words in said), flush=True)
    return f"FAILED: exit codes {codes}"


def main(asked: list[str]) -> int:
    if unknown := [name for name in asked if name not in CASES]:
        print(f"trainers_check: no case {unknown[0]!r}; {', '.join(CASES)}")
        return 2
    results = {}
    for name in asked or CASES:
        at, package = time.monotonic(), CASES[name][0]
        if importlib.util.find_spec(package) is None:
            results[name] = f"skipped: {package} is not installed (pip install {package})"
        else:
            results[name] = outcome(name)
        print(f"{name}: {results[name]} ({time.monotonic() - at:.0f} s)", flush=True)
    packages = sorted({package for package, _, _ in CASES.values()})
    found = [p for p in packages if importlib.util.find_spec(p)]
    print("\n== " + ", ".join(f"{p} {metadata.version(p)}" for p in found))
    good, skipped = (
        sum(word.startswith(kind) for word in results.values()) for kind in ("ok", "skipped")
    )
    failed = len(results) - good - skipped
    print(f"== {good} of {len(results)} ok, {skipped} skipped, {failed} failed")
    return 1 if failed else 77 if skipped == len(results) else 0


if __name__ == "__main__":
    if "RANK" in os.environ:
        serve(*sys.argv[1:])
    else:
        sys.exit(main(sys.argv[1:]))
