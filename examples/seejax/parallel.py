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

import atexit
import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

HEARTBEAT_TIMEOUT_S = 20


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
    try:
        return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
    except AssertionError as error:  # what JAX raises when it compares them
        raise DistributedError(
            "the processes hold different values of what all shall share: "
            "start each with the same arguments, data and versions"
        ) from error


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

    A process that dies later would leave the others waiting in an all-reduce. So each keeps a
    connection to process 0. When one is cut, they end with one sentence and status 1. Where there
    is no such connection (a firewall, a cable), JAX misses the heartbeat and aborts them (SIGABRT).

    Args:
      coordinator: "host:port" of process 0, where it listens, on a port that is free there.
      num_processes: how many there are, this one included.
      process_id: which one this is, 0 to num_processes - 1.
      timeout_s: how long to wait for the others.
      heartbeat_timeout_s: after how long without a sign of life a process counts as dead.
    Raises:
      ValueError: arguments that cannot be, or some of the three without the others.
      DistributedError: not all came in time, no cluster was found, the port is in use, or JAX has
        devices already. The process can only end now: JAX cannot call off what it has begun.

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
    host, port = "", ""
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

    def connect() -> None:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=timeout_s + 60,  # then JAX aborts the process, with no exception
            heartbeat_timeout_seconds=heartbeat_timeout_s,
            shutdown_timeout_seconds=heartbeat_timeout_s,
        )

    finished, error = _within(timeout_s, connect)
    if not finished:
        me = "" if process_id is None else f" This is process {process_id}."
        raise DistributedError(
            f"waited {timeout_s} s for {expected}, and not all of them came.{me} Start the others "
            "within that time, with the same address and number, each with an id of its own"
        )
    if isinstance(error, ValueError) and coordinator is None:
        raise DistributedError(
            "no cluster was detected (SLURM, Open MPI, Kubernetes, cloud TPU): "
            "give the coordinator's host:port, the number of processes and this one's id"
        ) from error
    if error is not None:
        raise DistributedError(f"this process cannot join {expected}: {error}") from error
    if jax.process_count() > 1:
        _end_together(host.strip("[]") if host else socket.gethostname())


def _within(timeout_s: float, call: Callable[[], None]) -> tuple[bool, Exception | None]:
    """Whether a call came back in time, and what it raised. If not, it goes on in a thread."""
    errors = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return not thread.is_alive(), next(iter(errors), None)


TOKEN_BYTES = 16


def _end_together(host: str) -> None:
    """Connect each process with process 0 (at `host`); whoever is cut off ends, and says why.

    The kernel closes the connections of a process that dies, however it dies. One that ends as it
    should takes its leave before.
    """
    me = jax.process_index()
    place = np.zeros(256, np.uint8)
    if me == 0:
        server = socket.create_server(("", 0), backlog=jax.process_count())
        token = secrets.token_bytes(TOKEN_BYTES)
        text = token + f"{server.getsockname()[1]} {host}".encode()
        place[: len(text)] = list(text)
    place = multihost_utils.broadcast_one_to_all(place).tobytes()
    token, (port, host) = place[:TOKEN_BYTES], place[TOKEN_BYTES:].rstrip(b"\0").decode().split()
    connections: list[socket.socket] = []
    leaving = threading.Event()

    def send(text: bytes) -> None:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(text)

    def leave() -> None:
        leaving.set()
        send(b"bye")
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def watch(connection: socket.socket, peer: str) -> None:
        try:
            said = connection.recv(TOKEN_BYTES).decode()
        except OSError:
            said = ""
        if said == "bye" or leaving.is_set():
            return
        gone = said or peer
        if me == 0:
            send(gone.encode())  # it tells the others which one it was
        sentence = (
            f"process {me}: process {gone} has died, and without it no other can go on. "
            "Its own messages say why; what was saved before can be resumed\n"
        )
        if me == 0:
            time.sleep(1)  # it may be about to end by the same error, and to say more
        os.write(2, sentence.encode())
        os._exit(1)  # the main thread waits in a collective, out of Python's reach

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with contextlib.suppress(OSError, ValueError):
                connection.settimeout(5)
                hello = connection.recv(64)
                if hello[:TOKEN_BYTES] == token:  # and not somebody else
                    connection.settimeout(None)
                    connections.append(connection)
                    peer = str(int(hello[TOKEN_BYTES:]))
                    threading.Thread(target=watch, args=(connection, peer), daemon=True).start()

    if me == 0:
        threading.Thread(target=serve, daemon=True).start()
    else:
        try:
            connections.append(socket.create_connection((host, int(port)), timeout=5))
        except OSError:
            return  # JAX's heartbeat has to do
        connections[0].settimeout(None)
        connections[0].sendall(token + str(me).encode())
        threading.Thread(target=watch, args=(connections[0], "0"), daemon=True).start()
    atexit.register(leave)
