"""Trainings for bench/harm.py that are unlike those of bench/ddp_train.py, on the same images.

mobilenet: depthwise convolutions and batch norms, whose tensors are smaller than a bucket. layerscale: a transformer
whose residual branches begin at a hundred thousandth (Touvron et al. 2021, "Going Deeper with Image Transformers").
contrastive: two encoders of an image's halves, and a learnt temperature. lora: factors of rank 4 beside matrices that
another task has trained. diffusion: a small U-Net that predicts noise. experts: of eight one is chosen for each image.
edge: a convolutional net without norms by SGD, at a rate at which fp32 loses its way now and then. sam: the same at a
lower rate by sharpness-aware minimization (Foret et al. 2021), whose first averages are thrown away."""

import functools
import math

import torch
from ddp_train import Task, Vit, images
from torch import nn
from torch.nn.functional import avg_pool2d, cross_entropy, mse_loss, normalize, one_hot, silu


def mobilenet(width=16):
    def convolution(inputs, outputs, size, stride=1, groups=1):
        return (
            nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        )

    layers, inputs = [*convolution(1, width, 3, 2), nn.ReLU6()], width
    for outputs, stride in ((width, 1), (2 * width, 2), (2 * width, 1), (4 * width, 2)):
        wide = 3 * inputs
        layers += [*convolution(inputs, wide, 1), nn.ReLU6()]
        layers += [*convolution(wide, wide, 3, stride, wide), nn.ReLU6()]
        layers += convolution(wide, outputs, 1)
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Scaled(nn.Module):
    """A branch, what it adds times a learnt factor of each channel."""

    def __init__(self, block, width):
        super().__init__()
        self.block, self.scale = block, nn.Parameter(torch.full((width,), 1e-5))

    def forward(self, x):
        return x + self.scale * (self.block(x) - x)


def layerscale():
    model = Vit()
    model.blocks = nn.Sequential(*(Scaled(block, 96) for block in model.blocks))
    return model


class Halves(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encoders = nn.ModuleList(
            nn.Sequential(nn.Flatten(), nn.Linear(392, width), nn.ReLU(), nn.Linear(width, 64))
            for _ in range(2)
        )
        self.temperature = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, x):
        left, right = (
            normalize(encode(half))
            for encode, half in zip(self.encoders, x.chunk(2, -1), strict=True)
        )
        return self.temperature.exp() * left @ right.T


class LowRank(nn.Module):
    """Hu et al. 2021, "LoRA", section 4.1: what is added is 0 at first."""

    def __init__(self, linear, rank=4):
        super().__init__()
        inputs, outputs = linear.in_features, linear.out_features
        self.linear, self.up = linear, nn.Parameter(torch.zeros(outputs, rank))
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)

    def forward(self, x):
        return self.linear(x) + 2 * (x @ self.down.T) @ self.up.T


@functools.cache
def trained(seed):
    """What a transformer knows after 400 batches of 64."""
    torch.manual_seed(seed)
    (x, y), _ = images()
    model = Vit()
    optimizer = torch.optim.AdamW(model.parameters(), 0.001)
    for _ in range(400):
        some = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        cross_entropy(model(x[some]), y[some]).backward()
        optimizer.step()
    return model.state_dict()


def lora():
    seed = torch.initial_seed()
    known = trained(seed)
    torch.manual_seed(seed)
    model = Vit()
    model.load_state_dict(known)
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("mix", "out", "wide", "narrow"):
            setattr(block, name, LowRank(getattr(block, name)))
    return model


class Unet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 2 * width))
        self.first = nn.Conv2d(1, width, 3, 1, 1)
        self.down = nn.Sequential(
            nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 2 * width, 3, 2, 1)
        )
        self.middle = nn.Sequential(
            nn.GroupNorm(4, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        )
        self.up = nn.Sequential(
            nn.GroupNorm(4, 2 * width), nn.SiLU(), nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        )
        self.last = nn.Conv2d(width, 1, 3, 1, 1)

    def forward(self, x, t):
        phase = 100 * t[:, None] * torch.exp(-0.8 * torch.arange(8))
        wide = self.first(x)
        deep = (
            self.down(wide) + self.time(torch.cat([phase.sin(), phase.cos()], 1))[:, :, None, None]
        )
        return self.last(silu(wide + self.up(deep + self.middle(deep))))


class Experts(nn.Module):
    def __init__(self, experts=8, width=64):
        super().__init__()
        self.first, self.last = nn.Linear(784, width), nn.Linear(width, 10)
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            for _ in range(experts)
        )

    def forward(self, x):
        x = self.first(x.flatten(1)).relu()
        odds = self.router(x).softmax(1)
        chosen = one_hot(odds.argmax(1), len(self.experts)).float()
        self.uneven = len(self.experts) * (chosen.mean(0) * odds.mean(0)).sum()
        of_all = torch.stack([expert(x) for expert in self.experts], 1)
        return self.last(x + ((chosen * odds)[:, :, None] * of_all).sum(1))


def edge(channels=16):
    layers, inputs = [], 1
    for outputs, stride in ((channels, 2), (2 * channels, 2), (2 * channels, 1)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * 49, 10))


MODELS = {
    "mobilenet": mobilenet,
    "layerscale": layerscale,
    "contrastive": Halves,
    "lora": lora,
    "diffusion": Unet,
    "experts": Experts,
    "edge": edge,
    "sam": edge,
}


class Unlike(Task):
    def __init__(self, name):
        self.name, self.kind, self.model = name, "images", MODELS[name]
        self.batch = 32 if name == "contrastive" else 16
        self.reach = 0.05 if name == "sam" else 0
        self.chance = torch.Generator().manual_seed(1)  # the same draws whatever the plan is

    def optimizer(self, parameters):
        if self.name in ("edge", "sam"):
            rate = 0.12 if self.name == "edge" else 0.05
            return torch.optim.SGD(parameters, rate, 0.9, weight_decay=5e-4)
        rate = 0.002 if self.name in ("mobilenet", "lora") else 0.001
        return torch.optim.AdamW(parameters, rate, weight_decay=0.05)

    def loss(self, model, x, y):
        if self.name == "contrastive":
            likeness, own = model(x), torch.arange(len(x))
            return (cross_entropy(likeness, own) + cross_entropy(likeness.T, own)) / 2
        if self.name == "diffusion":
            t = torch.rand(len(x), generator=self.chance)
            noise = torch.randn(len(x), 1, 14, 14, generator=self.chance)
            clean, noisy = (
                (math.pi / 2 * t).cos()[:, None, None, None],
                (math.pi / 2 * t).sin()[:, None, None, None],
            )
            return mse_loss(model(clean * avg_pool2d(x, 2) + noisy * noise, t), noise)
        if self.name == "lora":
            x = x.transpose(-1, -2).flip(-1)
        loss = cross_entropy(model(x), y)
        return loss + 0.01 * model.uneven if self.name == "experts" else loss
