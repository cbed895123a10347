"""The same training step on many devices: what is replicated, what is split, and who takes part.

    mesh = parallel.mesh()                       # all devices, one axis: "batch"
    state = parallel.replicate(state, mesh)      # every device holds all of it
    images = parallel.shard(images, mesh)        # every device holds its share of the batch
    state, sums = train_step(state, images, labels)

There is no second training step. jit sees where its arguments lie and splits the program along the
batch; the mean over the batch becomes an all-reduce, a sum over devices. One device, eight, or
eight in two processes take the same steps, up to the order of that sum.

For several processes, `initialize` comes before all else, in each of them.
"""

import hashlib
import socket
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

HEARTBEAT_TIMEOUT_S = 15


class DistributedError(RuntimeError):
    """The processes do not come together; the message says which were expected, and where."""


def mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Devices in a row, along the one axis "batch".

    Args:
      devices: all of them, in all processes, unless given.

    >>> dict(mesh().shape)
    {'batch': 8}
    """
    devices = jax.devices() if devices is None else devices
    # Auto: the compiler places what lies between input and output. JAX's default, Explicit, wants
    # the code to say it where it is ambiguous; then it would not be the same code any more.
    return jax.make_mesh((len(devices),), ("batch",), (AxisType.Auto,), devices=devices)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Put all of it on every device.

    Args:
      tree: a pytree of arrays; in each process the same values.
      mesh: from `mesh`.
    Returns:
      The same tree, its arrays of the same shape and dtype.
    Raises:
      DistributedError: the processes hold different values.

    >>> kernel = replicate(jnp.ones((3, 2)), mesh())
    >>> {shard.data.shape for shard in kernel.addressable_shards}
    {(3, 2)}
    """

    def content(leaf: jax.Array | np.ndarray) -> tuple:
        return leaf.dtype, leaf.shape, hashlib.sha256(np.ascontiguousarray(leaf)).digest()

    assert_same([content(leaf) for leaf in jax.tree.leaves(tree)])
    sharding = NamedSharding(mesh, PartitionSpec())

    def put(leaf: jax.Array | np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(leaf.shape, sharding, np.asarray(leaf).__getitem__)

    return jax.tree.map(put, tree)


def assert_same(value: Any) -> None:
    """Raise unless `repr(value)` is the same in every process.

    Raises:
      DistributedError: the processes differ.

    >>> assert_same({"seed": 0})
    """
    if jax.process_count() == 1:
        return
    digest = hashlib.blake2b(repr(value).encode(), digest_size=16).digest()
    try:
        multihost_utils.assert_equal(np.frombuffer(digest, np.uint32))
    except AssertionError as error:
        raise DistributedError(
            "the processes hold different values of what all shall share: "
            "start each with the same arguments, data and versions"
        ) from error


def everywhere(holds: bool) -> bool:
    """Whether it holds in every process; all of them have to ask.

    >>> everywhere(True)
    True
    """
    if jax.process_count() == 1:
        return holds
    return bool(np.all(multihost_utils.process_allgather(np.array(holds))))


def shard(batch: Any, mesh: Mesh, axis: int = 0) -> Any:
    """Split along the batch axis: the first device holds the first examples, and so on.

    Args:
      batch: a pytree of arrays (..., batch, ...); in each process all of it, and the same. Each
        copies to its devices what they are to hold; nothing is sent.
      mesh: from `mesh`.
      axis: which axis is the batch axis; 0 or above.
    Returns:
      The same tree, its arrays of the same (global) shape and dtype.
    Raises:
      ValueError: the devices cannot have equal shares.

    >>> labels = shard(jnp.arange(16), mesh())
    >>> [shard.data.tolist() for shard in labels.addressable_shards][:3]
    [[0, 1], [2, 3], [4, 5]]
    >>> shard(jnp.arange(12), mesh())
    Traceback (most recent call last):
    ValueError: a batch of 12 cannot be split evenly over 8 devices
    """
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * axis, *mesh.axis_names))

    def split(array: jax.Array | np.ndarray) -> jax.Array:
        array = np.asarray(array)
        if not 0 <= axis < array.ndim:
            raise ValueError(f"an array of shape {array.shape} has no axis {axis} to split")
        if array.shape[axis] % mesh.size:
            raise ValueError(
                f"a batch of {array.shape[axis]} cannot be split evenly over {mesh.size} devices"
            )
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(split, batch)


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout_s: int = 60,
    heartbeat_timeout_s: int = HEARTBEAT_TIMEOUT_S,
) -> None:
    """Become one of several processes; before anything that asks JAX for a device.

    With no arguments, JAX looks for the cluster that this process runs in: SLURM, Open MPI,
    Kubernetes, cloud TPU.

    When a process dies later, JAX misses its heartbeat and ends the others (SIGABRT, and a stack
    trace: there is no other way out of an all-reduce); it does so, too, when not all come in time.

    Args:
      coordinator: "host:port" of process 0, where it listens, on a port that is free there.
      num_processes: how many there are, this one included.
      process_id: which one this is, 0 to num_processes - 1.
      timeout_s: how long to wait for the others.
      heartbeat_timeout_s: after how long without a sign of life a process counts as dead.
    Raises:
      ValueError: arguments that cannot be, or some of the three without the others.
      DistributedError: no cluster was found, the port is in use, or JAX has devices already.

    >>> initialize("localhost:1234", 2)
    Traceback (most recent call last):
    ValueError: coordinator, num_processes and process_id: give all three, or none in a cluster
    """
    given = [x is not None for x in (coordinator, num_processes, process_id)]
    if any(given) and not all(given):
        raise ValueError(
            "coordinator, num_processes and process_id: give all three, or none in a cluster"
        )
    if timeout_s < 1 or heartbeat_timeout_s < 1:
        raise ValueError("timeout_s and heartbeat_timeout_s: at least 1 second is needed")
    expected = "all processes of the cluster that JAX detected"
    port = ""
    if coordinator is not None and num_processes is not None and process_id is not None:
        host, _, port = coordinator.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 2**16):
            raise ValueError(f"coordinator {coordinator!r}: host:port is needed")
        if num_processes < 1:
            raise ValueError(f"num_processes {num_processes}: at least 1 is needed")
        if not 0 <= process_id < num_processes:
            raise ValueError(f"process_id {process_id}: 0 to {num_processes - 1} is needed")
        expected = f"{num_processes} processes at {coordinator}"
    if jax.distributed.is_initialized():
        raise DistributedError("this process is one of several already: initialize it once")
    if process_id == 0:
        try:  # JAX would share a port that is in use, or abort
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise DistributedError(
                f"process 0 cannot listen on port {port} ({error.strerror}): choose another"
            ) from error

    # JAX would take SIGTERM for a protocol that is asked by counting steps, and Orbax counts, too.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=timeout_s,
            heartbeat_timeout_seconds=heartbeat_timeout_s,
            shutdown_timeout_seconds=heartbeat_timeout_s,
        )
    except ValueError as error:
        if coordinator is not None:
            raise
        raise DistributedError(
            "no cluster was detected (SLURM, Open MPI, Kubernetes, cloud TPU): "
            "give the coordinator's host:port, the number of processes and this one's id"
        ) from error
    except RuntimeError as error:
        raise DistributedError(f"this process cannot join {expected}: {error}") from error
