"""The nets of the benchmark in PyTorch: layer by layer what `shoal explain` shows for Shoal's."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(*widths):
    layers = []
    for wide_in, wide_out in zip(widths, widths[1:]):
        layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])  # no activation after the last one


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 1024), nn.ReLU(), nn.Linear(1024, 10))


def alexnet():
    """Krizhevsky 2014, one tower; without dropout, on both sides."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def conv_norm(c_in, c_out, kernel, stride):
    return nn.Sequential(nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(c_out))


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.first = conv_norm(c_in, c_out, 3, stride)
        self.second = conv_norm(c_out, c_out, 3, 1)
        same = stride == 1 and c_in == c_out
        self.shortcut = nn.Identity() if same else conv_norm(c_in, c_out, 1, stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet18(nn.Module):
    """For 32x32 images. Activations stay in oneDNN's blocked layout from the stem to the last
    block, which is the fastest that PyTorch has for it on a CPU."""

    def __init__(self):
        super().__init__()
        self.stem = conv_norm(3, 64, 3, 1)
        blocks, c_in = [], 64
        for c_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(c_in, c_out, stride), BasicBlock(c_out, c_out, 1)]
            c_in = c_out
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x.to_mkldnn())))
        return self.head(x.to_dense().mean((2, 3)))


class Attention(nn.Module):
    """Causal. baddbmm folds the scale and the mask into the product of q and k."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        mask = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        H, D = self.heads, C // self.heads
        q, k, v = (part.view(B, T, H, D).transpose(1, 2).reshape(B * H, T, D)
                   for part in self.qkv(x).split(C, 2))
        weights = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=D**-0.5).softmax(-1)
        y = torch.bmm(weights, v).view(B, H, T, D).transpose(1, 2).reshape(B, T, C)
        return self.project(y)


class GPTBlock(nn.Module):
    def __init__(self, width, heads, context, gelu):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(gelu),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """The head shares the weight of the embedding."""

    def __init__(self, layers, heads, width, context, vocabulary, gelu):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*[GPTBlock(width, heads, context, gelu)
                                      for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        x = self.blocks(self.tokens(tokens) + self.positions)
        return F.linear(self.norm(x), self.tokens.weight).flatten(0, 1)  # (B T, vocabulary)
