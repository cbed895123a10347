"""Small networks, trained for some steps by PyTorch: what the page `from-pytorch` carries over.

    python bench/torch_models.py    # some seconds, by a Python that has torch and safetensors

It writes the state_dict of each network into examples/seejax/lesson, as .safetensors, and beside
them `torch_answers.safetensors`: what each network was given and what it answered. The versions
and the date stand in the metadata of that file. All are seeded, and small: 50 kB together.
"""

import datetime
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = Path(__file__).parents[1] / "examples" / "seejax" / "lesson"


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 16, bias=False)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(nn.functional.gelu(self.norm(self.hidden(x))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.out = nn.Linear(6 * 2 * 3, 4)

    def forward(self, x):  # (batch, 2, 8, 12)
        x = torch.relu(self.norm(self.conv(x)))
        x = nn.functional.max_pool2d(x, 2)
        return self.out(x.flatten(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.norm1 = nn.LayerNorm(12)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.norm2 = nn.LayerNorm(12)
        self.up = nn.Linear(12, 24)
        self.down = nn.Linear(24, 12)
        self.drop = nn.Dropout(0.1)

    def forward(self, tokens):  # (batch, length)
        x = self.embed(tokens)
        later = torch.ones(x.shape[1], x.shape[1], dtype=bool).triu(1)
        h = self.norm1(x)
        x = x + self.drop(self.attention(h, h, h, attn_mask=later, need_weights=False)[0])
        h = nn.functional.gelu(self.up(self.norm2(x)))
        return x + self.drop(self.down(h))


def fit(model, x, target):
    """Thirty steps, so that no array is left as it was made."""
    for p in model.parameters():  # the biases and scales that begin as 0 or 1, too
        p.data += 0.1 * torch.randn_like(p)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
    return model.eval()


def watch(model, x):
    """What went into each layer and what came out, by the layer's name."""
    seen = {}

    def keep(name):
        def hook(layer, given, returned):
            seen[f"{name}.in"], seen[f"{name}.out"] = given[0].clone(), returned.clone()

        return hook

    for name, layer in model.named_children():
        layer.register_forward_hook(keep(name))
    seen["input"], seen["output"] = x, model(x)
    return seen


def answers():
    """Every network's state_dict is written; what they answered is returned."""
    found = {}

    def save(name, model):
        save_file(model.state_dict(), FOLDER / f"torch_{name}.safetensors")

    def add(name, arrays):
        found.update({f"{name}.{key}": value for key, value in arrays.items()})

    torch.manual_seed(0)
    x = 0.05 * torch.randn(5, 6)
    mlp = fit(Mlp(), x, torch.randn(5, 3))
    mlp.zero_grad()
    ((mlp(x) - 1) ** 2).mean().backward()
    save("mlp", mlp)
    add("mlp", {"input": x, "output": mlp(x), "grad": mlp.hidden.weight.grad})

    torch.manual_seed(1)
    x = torch.randn(5, 2, 8, 12) + 0.5
    cnn = fit(Cnn(), x, torch.randn(5, 4))
    save("cnn", cnn)
    add("cnn", watch(cnn, x))

    torch.manual_seed(2)
    tokens = torch.randint(0, 20, (3, 7))
    block = fit(Block(), tokens, torch.randn(3, 7, 12))
    save("block", block)
    add("block", {"input": tokens, "output": block(tokens)})

    torch.manual_seed(3)
    rows = torch.randn(4, 9, 5)
    for name, kind in {"lstm": nn.LSTM, "gru": nn.GRU}.items():
        layer = fit_recurrent(kind(5, 7, batch_first=True), rows)
        save(name, layer)
        add(name, {"input": rows, "output": layer(rows)[0]})

    torch.manual_seed(4)
    x = torch.randn(2, 6, 5, 6)
    others = nn.ModuleDict(
        {
            "deep": nn.Conv2d(6, 12, 3, padding=1, groups=3),
            "up": nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1),
            "group": nn.GroupNorm(2, 6),
        }
    )
    for p in others.parameters():
        p.data += 0.3 * torch.randn_like(p)
    save("others", others)
    add("others", {"input": x, **{name: layer(x) for name, layer in others.items()}})

    torch.manual_seed(5)
    x = 3 * torch.randn(6, 2) + 1
    norm = nn.BatchNorm1d(2)
    add("batch", {"input": x, "output": norm(x)})
    add("batch", {"mean": norm.running_mean, "var": norm.running_var})

    torch.manual_seed(6)
    fresh = {
        "linear": nn.Linear(400, 300),
        "conv": nn.Conv2d(16, 300, 5),
        "embed": nn.Embedding(1000, 64),
        "lstm": nn.LSTM(100, 400),
        "attention": nn.MultiheadAttention(192, 3),
    }
    for name, layer in fresh.items():
        for key, p in layer.named_parameters():
            add("fresh", {f"{name}.{key}": torch.stack([p.std(), p.abs().max()])})
    return {name: value.detach().clone().contiguous() for name, value in found.items()}


def fit_recurrent(layer, x):
    target = torch.rand(*x.shape[:2], 7)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        ((layer(x)[0] - target) ** 2).mean().backward()
        optimizer.step()
    return layer


if __name__ == "__main__":
    made = f"torch {torch.__version__}, safetensors {safetensors.__version__}, "
    made += datetime.date.today().isoformat()
    save_file(answers(), FOLDER / "torch_answers.safetensors", {"made": made})
