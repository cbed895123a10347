"""PyTorch's contenders: deep-spin's entmax, AdaSplash's, and the MLP trained eagerly."""

import os
from importlib.metadata import version

import numpy as np
import torch
from entmax import entmax15, entmax_bisect

torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")

# MKL looks for the right kernel in a function's first call. If two threads make it at once, one may
# get a kernel with half the digits, for that call (pytorch#188792): entmax15's root would be wrong.
torch.ones(1).sqrt()


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "entmax": version("entmax")}


def prepare(case: dict):
    return {"entmax": entmax, "epoch": epoch}[case["what"]](case)


def wait() -> None:
    if DEVICE == "cuda":  # on the CPU an operation has ended when it returns
        torch.cuda.synchronize()


def entmax(case: dict):
    z = torch.from_numpy(np.load(case["z"])).to(DEVICE).requires_grad_()
    g = torch.from_numpy(np.load(case["g"])).to(DEVICE)
    if case["by"] == "entmax15":
        forward = lambda z: entmax15(z, dim=-1)  # noqa: E731
    elif case["by"] == "entmax_bisect":
        forward = lambda z: entmax_bisect(z, alpha=case["alpha"], dim=-1)  # noqa: E731
    else:
        from adasplash import triton_entmax  # with a GPU alone

        forward = lambda z: triton_entmax(z, alpha=case["alpha"])  # noqa: E731

    def begin() -> None:
        z.grad = None

    def run(_):
        p = forward(z)
        p.backward(g)
        wait()
        return p

    return begin, run, lambda p: {"p": p.detach().cpu().numpy(), "dz": z.grad.cpu().numpy()}


def epoch(case: dict):
    data = np.load(case["data"])
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"].astype(np.int64))
    nn, batch = torch.nn, case["batch"]
    loss_of = nn.CrossEntropyLoss()
    dataset = torch.utils.data.TensorDataset(x, y)

    def batches(order):
        if case["loader"]:  # collects a batch row by row, as its tutorials do
            return torch.utils.data.DataLoader(dataset, batch, sampler=order.tolist())
        return ((x[rows], y[rows]) for rows in order.split(batch))

    def begin():
        layers = [nn.Linear(*data[f"w{i}"].shape) for i in range(3)]
        for i, layer in enumerate(layers):
            layer.weight.data = torch.from_numpy(np.ascontiguousarray(data[f"w{i}"].T))
            layer.bias.data.zero_()
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        return model, torch.optim.Adam(model.parameters(), 1e-3, eps=1e-8, fused=case["fused"])

    def train(state, order):
        model, adam = state
        total = torch.zeros(())
        for images, labels in batches(order):
            adam.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            adam.step()
            total += loss.detach()
        return float(total) / (len(order) // batch)

    def check(loss: float):
        model, adam = begin()
        early = train((model, adam), torch.arange(case["checked"]))
        logits = model(x[:batch]).detach().numpy()
        return {"early_loss": np.array(early), "logits": logits, "loss": np.array(loss)}

    return begin, lambda state: train(state, torch.randperm(len(x))), check
