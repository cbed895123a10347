"""Parallel training: one device against many, `pmean` by hand, and processes that do not come."""

import os
import random
import re
import signal
import socket
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from processes import Process
from seejax import training
from seejax.lesson.processes import address
from seejax.training import Config, RunError, digits, folder, parallel, train
from seejax.training.classifier import classifier

pytestmark = pytest.mark.usefixtures("compiled_once")

CONFIG = Config(epochs=3)
MOMENTS = int(os.environ.get("SEEJAX_MOMENTS", "1"))  # see test_training.py
TOGETHER = Config(epochs=8 * (MOMENTS + 1))


@pytest.fixture(scope="module")
def train_split(data_dir) -> digits.Split:
    return jax.tree.map(jnp.asarray, digits.load("digits", "train", data_dir))


def initial(train_split: digits.Split, model: str = "linen") -> training.TrainState:
    return training.create_state(jax.random.key(0), classifier(model), train_split.images[:1])


def assert_close(a: object, b: object, atol: float = 1e-5) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), atol=atol, rtol=0)


# --- in one process


@pytest.mark.parametrize(("devices", "model"), [(1, "linen"), (8, "nnx"), (8, "cnn")])
def test_an_epoch_on_many_devices_is_that_on_one(train_split, devices, model):
    order = digits.epoch_order(jax.random.key(1), len(train_split.labels), 32)[:12]
    one, sums_of_one = training.train_epoch(initial(train_split, model), *train_split, order)
    mesh = parallel.mesh(jax.devices()[:devices])
    state, *arrays = parallel.replicate((initial(train_split, model), *train_split), mesh)
    arrays.append(parallel.shard(order, mesh, axis=1))
    many, sums = training.train_epoch(state, *arrays)
    assert_close(many.params, one.params, atol=2e-5)
    assert_close(sums.loss / 32, sums_of_one.loss / 32)
    assert sums.correct.tolist() == sums_of_one.correct.tolist()
    for leaf in jax.tree.leaves(many):  # it can go in again as it came out
        assert leaf.sharding.device_set == set(mesh.devices.flat)
        assert leaf.sharding.is_fully_replicated
    with jax.no_tracing():
        training.train_epoch(many, *arrays)


def test_the_gradient_is_the_mean_of_the_devices_gradients_written_out(train_split):
    mesh, batch = parallel.mesh(), jax.tree.map(lambda x: x[:64], train_split)
    state = initial(train_split)

    def device_gradient(params, images, labels):
        def mean_loss(params):
            logits = state.apply_fn({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        assert images.shape == (8, 8, 8, 1)  # what one device sees
        return jax.lax.pmean(jax.grad(mean_loss)(params), "batch")

    by_hand = jax.jit(
        jax.shard_map(
            device_gradient,
            mesh=mesh,
            in_specs=(P(), P("batch"), P("batch")),
            out_specs=P(),
            check_vma=False,  # with it, grad would already sum over the devices
        )
    )(state.params, *batch)
    after, _ = training.train_step(parallel.replicate(state, mesh), *parallel.shard(batch, mesh))
    gradient = jax.tree.map(lambda mu: mu / 0.1, after.opt_state[0].mu)  # Adam's first moment
    assert_close(gradient, by_hand, atol=1e-7)
    assert max(abs(g).max() for g in jax.tree.leaves(by_hand)) > 1e-3


def test_devices_compute_their_share_and_all_reduce(train_split):
    mesh, batch = parallel.mesh(), jax.tree.map(lambda x: x[:48], train_split)
    state = initial(train_split)

    def program(*args) -> str:
        return training.train_step.lower(*args).compile().as_text()

    alone = program(state, *batch)
    together = program(parallel.replicate(state, mesh), *parallel.shard(batch, mesh))
    assert "all-reduce" in together and "all-reduce" not in alone
    assert "all-gather" not in together  # no device asks for another one's examples
    # The hidden layer's values: 48 examples on one device, 6 on each of eight.
    assert "f32[48,128]" in alone and "f32[6,128]" not in alone
    assert "f32[48,128]" not in together and "f32[6,128]" in together

    order = digits.epoch_order(jax.random.key(1), len(train_split.labels), 48)
    arrays = parallel.replicate((state, *train_split), mesh)
    lowered = training.scan_epoch.lower(*arrays, parallel.shard(order, mesh, axis=1))
    epoch = lowered.compile().as_text()
    assert "all-reduce" in epoch and "all-gather" not in epoch
    assert "f32[48,128]" not in epoch and "f32[6,128]" in epoch


@pytest.mark.parametrize("axis", [0, 1])
def test_each_device_holds_the_examples_it_is_said_to_hold(axis):
    mesh = parallel.mesh()
    array = np.arange(6 * 16 * 16, dtype=np.float32).reshape(16, 16, 6)
    sharded = parallel.shard({"x": array}, mesh, axis)["x"]
    assert sharded.shape == array.shape and sharded.dtype == array.dtype
    assert len(sharded.addressable_shards) == 8
    for i, shard in enumerate(sharded.addressable_shards):
        assert shard.device == jax.devices()[i]
        expected = np.split(array, 8, axis)[i]
        assert np.array_equal(shard.data, expected)
    for shard in parallel.replicate(array, mesh).addressable_shards:
        assert np.array_equal(shard.data, array)


def test_what_cannot_be_split_is_refused_early(train_split, tmp_path):
    mesh = parallel.mesh(jax.devices()[:3])
    with pytest.raises(ValueError, match="a batch of 32 cannot be split evenly over 3 devices"):
        parallel.shard(train_split.labels[:32], mesh)
    with pytest.raises(ValueError, match=r"shape \(30,\) has no axis 1"):
        parallel.shard(train_split.labels[:30], mesh, axis=1)
    with pytest.raises(RunError, match=r"batch_size 32: .* a multiple of 3 is needed"):
        train(CONFIG, tmp_path / "run", mesh=mesh, data_dir="/nowhere")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("host:1",), "give all three, or none"),
        ((None, 2, 0), "give all three, or none"),
        (("host", 2, 0), "coordinator 'host': host:port is needed"),
        ((":1234", 2, 0), "coordinator ':1234': host:port is needed"),
        (("host:65536", 2, 0), "host:port is needed"),
        (("host:1", 2, 2), "process_id 2: 0 to 1 is needed"),
        (("host:1", 2, -1), "process_id -1: 0 to 1 is needed"),
        (("host:1", 0, 0), "num_processes 0: at least 1"),
    ],
)
def test_arguments_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        parallel.initialize(*arguments)


def test_it_is_too_late_when_devices_are_in_use():
    jax.devices()
    with pytest.raises(parallel.DistributedError, match="must be called before"):
        parallel.initialize(f"127.0.0.1:{free_port()}", 1, 0)
    with pytest.raises(ValueError, match="at least 1 second"):
        parallel.initialize(timeout_s=0)


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(parallel.DistributedError, match=f"on port {port} .* choose another"):
            parallel.initialize(f"127.0.0.1:{port}", 2, 0)


# --- in several


def free_port() -> int:
    return int(address().partition(":")[2])


CLUSTERS = ("JAX_", "SLURM_", "KUBERNETES_", "OMPI_", "PMIX_", "TPU_")


def start(*commands: list, devices: int = 2, env: dict | None = None) -> list[Process]:
    """Python processes on one machine, each with its own devices."""
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(CLUSTERS)}
    kept = {k: v for k, v in kept.items() if "_proxy" not in k.lower()}  # JAX warns of them
    kept |= {"JAX_PLATFORMS": "cpu"}
    flags = f"{kept.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    kept |= {"XLA_FLAGS": flags.strip()}  # of a flag given twice, XLA takes the last
    return [
        Process(
            *(sys.executable, "-u", "-W", "error", *command),
            env=kept | {k: v.format(i=i) for k, v in (env or {}).items()},
        )
        for i, command in enumerate(commands)
    ]


GLOO = re.compile(
    r"\[Gloo\] Rank |is connected to | peer ranks\. |Expected number of connected peer ranks is : "
)


def outcome(process: Process) -> tuple[int, list[str], list[str]]:
    """Exit status, and the lines of stdout and stderr without what Gloo says of its connections.

    Gloo's threads write a line in pieces, one in the middle of another's: what is left of them
    when the words are taken out is numbers, and not always on one line.
    """
    status, *written = process.end()
    out, err = (
        [line for line in GLOO.sub("", text).splitlines() if not re.fullmatch(r"[\d\s]*", line)]
        for text in written
    )
    return status, out, err


def distributed(port: int, i: int, *arguments: object) -> list:
    who = ["--distributed", "--coordinator", f"127.0.0.1:{port}", "--num-processes", 2]
    return ["-m", "seejax.training", *who, "--process-id", i, *arguments]


def losses(history: list[training.Epoch]) -> np.ndarray:
    return np.array([[epoch["loss"], epoch["test_loss"]] for epoch in history])


@pytest.fixture(scope="module")
def together(data_dir, tmp_path_factory) -> Path:
    """A run by two processes of two devices that nothing disturbs."""
    workdir, port = tmp_path_factory.mktemp("runs") / "together", free_port()
    arguments = ["--epochs", TOGETHER.epochs, "--data-dir", data_dir, "--workdir", workdir]
    outcomes = map(outcome, start(*(distributed(port, i, *arguments) for i in range(2))))
    (status, said, err), (status_of_second, echo, err_of_second) = outcomes
    assert (status, status_of_second) == (0, 0), (err, err_of_second)
    assert not re.search("warning|error|exception", f"{err} {err_of_second}", re.IGNORECASE)
    assert echo == []  # the first speaks for both
    assert said[-1].startswith(f"{TOGETHER.epochs} epochs, loss ")
    return workdir


def ended(config: Config, workdir: Path, data_dir: Path) -> tuple[list[bytes], np.ndarray]:
    """What several processes have saved, as one device takes it; no epoch is left to run."""
    where = {"data_dir": data_dir, "resume": True, "say": lambda line: None}
    state, history = train(config, workdir, **where)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)], losses(history)


def test_one_device_eight_devices_and_two_processes_of_two_agree(together, data_dir, tmp_path):
    options = {"data_dir": data_dir, "say": lambda line: None}
    one, history = train(CONFIG, tmp_path / "one", **options)
    eight, history_of_eight = train(CONFIG, tmp_path / "eight", mesh=parallel.mesh(), **options)

    _, losses_of_both = ended(TOGETHER, together, data_dir)

    assert history[-1]["loss"] < history[0]["loss"] / 2
    assert_close(losses(history_of_eight), losses(history))
    assert_close(losses_of_both[:3], losses(history))
    # Adam divides by a gradient's own size: where that is 1e-7, a sum in another order is seen.
    assert_close(eight.params, one.params, atol=1e-3)
    files = sorted(p.parent.name for p in together.glob("tensorboard/**/events*"))
    assert files == ["test", "train", "validation"]


def test_a_missing_peer_is_an_error_and_not_a_hang(tmp_path):
    ports = free_port(), free_port()
    workdir = ["--timeout-s", 3, "--workdir", tmp_path / "run"]
    commands = [distributed(port, i, *workdir) for i, port in enumerate(ports)]
    commands.append(["-m", "seejax.training", "--distributed", "--workdir", tmp_path / "run"])
    commands.append(distributed(ports[0], 2, *workdir))
    first, second, nowhere, wrong = map(outcome, start(*commands))
    for status, out, err in (first, second):
        assert (status, out) == (-signal.SIGABRT, []) and err  # JAX's own words, and a stack trace
    status, _, err = nowhere
    assert status == 1 and "no cluster was detected" in err[-1] and len(err) == 1
    status, _, err = wrong
    assert status == 2 and "process_id 2: 0 to 1 is needed" in err[-1] and len(err) == 1
    assert not (tmp_path / "run").exists()


def test_two_processes_with_one_number(tmp_path):
    """Another process 1 comes when the two are at work: all end, and none hangs."""
    port = free_port()
    common = ["--workdir", tmp_path / "run", "--timeout-s", 10]
    running = start(*(distributed(port, i, *common, "--epochs", 9999) for i in range(2)))
    running[0].wait_for("saved")
    running += start(distributed(port, 1, *common, "--resume"))
    for process in running:
        status, _, err = outcome(process)
        assert status in (1, -signal.SIGABRT) and err


@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_is_killed_the_other_ends_and_says_so(victim, data_dir, tmp_path):
    port = free_port()
    arguments = ["--epochs", 9999, "--data-dir", data_dir, "--workdir", tmp_path / "run"]
    running = start(*(distributed(port, i, *arguments) for i in range(2)))
    running[0].wait_for("saved")
    running[victim].kill()
    status, _, err = outcome(running[1 - victim])
    if status == -signal.SIGABRT:  # JAX has missed a heartbeat, and ends the process
        assert "JAX distributed service" in "\n".join(err)
        return
    assert status == 1  # the collective has failed; JAX may complain beside our sentence
    (said,) = [
        line for line in err if line.startswith("python -m seejax.training: error: process ")
    ]
    assert f"go on with: python -m seejax.training --workdir {tmp_path / 'run'} --resume" in said
    assert said.endswith(f"--process-id {1 - victim}")


def test_stopped_and_killed_and_resumed_together(together, data_dir, tmp_path):
    """SIGTERM to one; with SEEJAX_MOMENTS=3 SIGKILL to both, too: as if nothing had been."""
    rng = random.Random(0)
    options = ["--epochs", TOGETHER.epochs, "--data-dir", data_dir, "--workdir", tmp_path / "run"]

    def run(*more: str) -> list[Process]:
        port = free_port()
        return start(*(distributed(port, i, *options, *more) for i in range(2)))

    for moment in range(MOMENTS):
        processes = run(*["--resume"] * (moment > 0))
        processes[0].wait_for("saved")
        time.sleep(rng.uniform(0, 0.3))
        if moment % 3:
            for process in processes:
                process.kill()
            continue
        processes[rng.randrange(2)].send(signal.SIGTERM)
        (status, _, said), (status_of_second, _, quiet) = map(outcome, processes)
        assert (status, status_of_second) == (143, 143), (said, quiet)
        steps = folder.steps(folder.path(tmp_path / "run"))
        assert said[-1].startswith(f"stopped at step {steps[-1]}, ") and len(said) == 1
        assert quiet == []
    assert [outcome(process)[0] for process in run("--resume")] == [0, 0]
    state, history = ended(TOGETHER, tmp_path / "run", data_dir)
    calm, history_of_calm = ended(TOGETHER, together, data_dir)
    assert state == calm and (history == history_of_calm).all()


def test_two_processes_agree_to_refuse(data_dir, tmp_path):
    """One of them finds the folder in use: both end, and neither waits for the other."""
    with folder.locked(folder.path(tmp_path / "run")):
        port, options = free_port(), ["--data-dir", data_dir, "--workdir", tmp_path / "run"]
        ended = [outcome(p) for p in start(*(distributed(port, i, *options) for i in range(2)))]
    (status, _, err), (status_of_second, _, err_of_second) = ended
    assert status == 1 and "another run is writing into" in "\n".join(err)
    # The first is JAX's coordinator. If it has gone before the second has, JAX complains beside
    # our sentence, or ends the second.
    assert status_of_second in (1, -signal.SIGABRT)
    said = "\n".join(err_of_second)
    assert "another process cannot go on, and says why" in said or status_of_second != 1, said


MEMBER = """
import functools, sys
import jax, jax.numpy as jnp
from seejax.training import parallel
parallel.initialize(*sys.argv[1:2], *map(int, sys.argv[2:4]), timeout_s=50)
mesh = parallel.mesh()
say = functools.partial(print, file=sys.stderr)  # stdout is where Gloo writes, too
"""
DISAGREE = """
for value in (jax.process_index(), 7):
    try:
        tree = parallel.replicate({"seed": jnp.int32(value)}, mesh)
        say("seed", tree["seed"])
    except parallel.DistributedError as error:
        say(error)
x = parallel.shard(jnp.arange(16), mesh)
say([shard.data.tolist() for shard in x.addressable_shards], jax.jit(jnp.sum)(x))
"""


def test_slurm_is_detected_and_a_disagreement_is_found():
    slurm = {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "{i}",
        "SLURM_LOCALID": "{i}",
        "JAX_COORDINATOR_PORT": str(free_port()),  # otherwise made from the job's number
    }
    command = ["-c", MEMBER + DISAGREE]
    outcomes = [outcome(process) for process in start(command, command, devices=4, env=slurm)]
    for i, (status, _, err) in enumerate(outcomes):
        assert status == 0, err
        disagreement, seed, share = err
        assert disagreement.startswith("the processes hold different values") and seed == "seed 7"
        assert share == f"{[[8 * i + 2 * j, 8 * i + 2 * j + 1] for j in range(4)]} 120"
