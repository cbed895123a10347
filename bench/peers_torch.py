"""PyTorch's contenders: deep-spin's entmax, AdaSplash's, and the loop of training."""

import itertools
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
    kinds = {"entmax": entmax, "convolution": convolution}
    kinds |= {"training": training, "products": products, "product": product}
    return kinds[case["what"]](case)


def wait() -> None:
    if DEVICE == "cuda":  # on the CPU an operation has ended when it returns
        torch.cuda.synchronize()


def entmax(case: dict):
    z = torch.from_numpy(np.load(case["z"])).to(DEVICE).requires_grad_()
    g = torch.from_numpy(np.load(case["g"])).to(DEVICE)
    options = {name: case[name] for name in ("k", "n_iter") if name in case}
    if case["by"] == "entmax15":
        forward = lambda z: entmax15(z, dim=-1, **options)  # noqa: E731
    elif case["by"] == "entmax_bisect":
        forward = lambda z: entmax_bisect(z, alpha=case["alpha"], dim=-1, **options)  # noqa: E731
    else:
        from adasplash import triton_entmax  # with a GPU alone

        forward = lambda z: triton_entmax(z, alpha=case["alpha"])  # noqa: E731
    if case.get("compiled"):
        forward = torch.compile(forward)

    def begin() -> None:
        z.grad = None

    def run(_):
        p = forward(z)
        p.backward(g)
        wait()
        return p

    return begin, run, lambda p: {"p": p.detach().cpu().numpy(), "dz": z.grad.cpu().numpy()}


def convolution(case: dict):
    """One part of a convolution, in PyTorch's own layout: forward, or one of its gradients."""
    x, w, g = map(torch.from_numpy, np.load(case["data"]).values())
    x, g = (each.permute(0, 3, 1, 2).contiguous().to(DEVICE) for each in (x, g))
    w = w.permute(3, 2, 0, 1).contiguous().to(DEVICE)
    part, pad = case["part"], w.shape[-1] // 2

    def run(_):
        with torch.no_grad():
            if part == "forward":
                y = torch.nn.functional.conv2d(x, w, padding=pad)
            else:  # what autograd calls
                which = [part == "by input", part == "by kernel", False]
                where = [1, 1], [pad, pad], [1, 1], False, [0, 0], 1
                both = torch.ops.aten.convolution_backward(g, x, w, None, *where, which)
                y = both[part == "by kernel"]
        wait()
        return y

    back = (2, 3, 1, 0) if part == "by kernel" else (0, 2, 3, 1)
    return lambda: None, run, lambda y: {"y": y.permute(back).cpu().numpy()}


def network(data) -> torch.nn.Sequential:
    """The layers that the first weights are of, which come as Flax has them: inputs first."""
    nn, layers = torch.nn, []
    names = itertools.takewhile(data.__contains__, (f"w{i}" for i in itertools.count()))
    weights = [data[name] for name in names]
    convolutions = sum(weight.ndim == 4 for weight in weights)
    for i, weight in enumerate(weights):
        if weight.ndim == 4:
            layer = nn.Conv2d(*weight.shape[2:], weight.shape[:2], padding=weight.shape[0] // 2)
            weight = weight.transpose(3, 2, 0, 1)
            layers += [layer, nn.ReLU(), nn.MaxPool2d(2)]
        else:
            if 0 < i == convolutions:  # its inputs come as (height, width, channel)
                layers.append(nn.Flatten())
                channels = weights[i - 1].shape[-1]
                side = round((len(weight) // channels) ** 0.5)
                weight = weight.reshape(side, side, channels, -1).transpose(2, 0, 1, 3)
                weight = weight.reshape(channels * side * side, -1)
            layer = nn.Linear(*weight.shape)
            weight = weight.T
            layers += [layer, nn.ReLU()]
        layer.weight.data = torch.from_numpy(np.ascontiguousarray(weight))
        layer.bias.data.zero_()
    return nn.Sequential(*layers[:-1])


def training(case: dict):
    """An epoch of the usual loop; fused: Adam as one kernel, compiled: forward and backward."""
    data, batch = dict(np.load(case["data"])), case["batch"]
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"].astype(np.int64))
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    if case.get("channels_last"):
        x = x.contiguous(memory_format=torch.channels_last)
    loss_of = torch.nn.CrossEntropyLoss()
    dataset = torch.utils.data.TensorDataset(x, y)

    def batches(order):
        if case.get("loader"):  # collects a batch row by row, as its tutorials do
            return torch.utils.data.DataLoader(dataset, batch, sampler=order.tolist())
        return ((x[rows], y[rows]) for rows in order.split(batch))

    model = network(data)
    if case.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    loss_of_model = lambda model, images, labels: loss_of(model(images), labels)  # noqa: E731
    if case.get("compiled"):
        loss_of_model = torch.compile(loss_of_model)

    start = {name: value.clone() for name, value in model.state_dict().items()}

    def begin():
        model.load_state_dict(start)
        return torch.optim.Adam(model.parameters(), 1e-3, eps=1e-8, fused=case.get("fused", False))

    def train(adam, order):
        total = torch.zeros(())
        for images, labels in batches(order):
            adam.zero_grad()
            loss = loss_of_model(model, images, labels)
            loss.backward()
            adam.step()
            total += loss.detach()
        return float(total) / (len(order) // batch)

    def check(loss: float):
        early = train(begin(), torch.arange(case["checked"]))
        logits = model(x[:batch]).detach().numpy()
        return {"early_loss": np.array(early), "logits": logits, "loss": np.array(loss)}

    return begin, lambda adam: train(adam, torch.randperm(len(x))), check


def products(case: dict):
    """The matrix products of an epoch of the MLP and nothing else, into memory at hand."""
    data = np.load(case["data"])
    batches = torch.from_numpy(data["x"]).reshape(-1, case["batch"], 784)
    params = [torch.from_numpy(data[f"w{i}"]) for i in range(3)]
    hidden = [torch.empty(case["batch"], weight.shape[1]) for weight in params]
    back = [torch.empty_like(h) for h in hidden]
    gradients = [torch.empty_like(weight) for weight in params]

    def run(_) -> None:
        for x in batches:
            inputs = [x, *hidden[:-1]]
            for weight, before, after in zip(params, inputs, hidden, strict=True):
                torch.mm(before, weight, out=after)
            above = hidden[-1]
            for i in (2, 1, 0):
                torch.mm(inputs[i].T, above, out=gradients[i])
                if i:
                    above = torch.mm(above, params[i].T, out=back[i - 1])

    return lambda: None, run, lambda _: {}


def product(case: dict):
    """One square product a step, with as many multiplications as the step has."""
    a = torch.ones(case["size"], case["size"])
    out = torch.empty_like(a)

    def run(_) -> None:
        for _ in range(case["steps"]):
            torch.mm(a, a, out=out)

    return lambda: None, run, lambda _: {}
