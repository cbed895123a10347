"""Processes that JAX joins, and what the page about them says of JAX."""

import inspect
import os
import random
import signal
import socket
import sys
import time

import jax
import numpy as np
import pytest
import scipy.special

from processes import Process, alive, wait_until
from seejax.lesson.processes import Processes, RemoteError, address

LIMIT_S = 120


def test_an_address_is_one_where_nobody_listens(monkeypatch):
    here = int(address().partition(":")[2])
    with socket.create_server(("", 0)) as server:
        ports = [server.getsockname()[1], here]
        monkeypatch.setattr(random.SystemRandom, "sample", lambda self, *_: ports)
        assert address() == f"127.0.0.1:{here}"
        del ports[1]
        with pytest.raises(OSError, match="none is free"):
            address()


@pytest.fixture(scope="module")
def pair():
    with Processes(2, devices=2, limit_s=LIMIT_S) as pair:

        @pair.run
        def make():
            global mesh, rows, x
            mesh = jax.make_mesh((4,), ("data",), (jax.sharding.AxisType.Auto,))
            rows = jax.NamedSharding(mesh, jax.P("data"))
            mine = np.arange(2, dtype=np.float32) + 10 * jax.process_index()
            x = jax.make_array_from_process_local_data(rows, mine)

        yield pair


def who():
    print("I am", jax.process_index())
    return jax.process_index(), jax.process_count(), jax.device_count()


def total():
    return float(jax.jit(jax.numpy.sum)(x))


def test_a_function_runs_in_each_and_what_it_prints_names_the_process(pair, capsys):
    assert pair.run(who) == [(0, 2, 4), (1, 2, 4)]
    assert capsys.readouterr().out == "0 │ I am 0\n1 │ I am 1\n"

    @pair.run
    def twice(n=2):
        return n * jax.process_index()

    assert twice == [0, 2]
    assert pair.run(power, 3, 2) == [9, 9]


def flags():
    import os

    return os.environ["XLA_FLAGS"].split()


def test_processes_keep_the_flags_that_they_are_started_with(monkeypatch):
    given = "--xla_cpu_max_isa=SSE4_2 --xla_force_host_platform_device_count=3"
    monkeypatch.setenv("XLA_FLAGS", given)
    with Processes(1, devices=2, limit_s=LIMIT_S) as one:
        assert one.run(flags)[0][0] == "--xla_cpu_max_isa=SSE4_2"
        assert one.run(who) == [(0, 1, 2)]


def power(base, exponent):
    return base**exponent


def test_a_function_of_jax_over_both_is_scipys_over_all(pair):
    def logsumexp():
        return float(jax.jit(jax.scipy.special.logsumexp)(x))

    expected = scipy.special.logsumexp([0.0, 1.0, 10.0, 11.0])
    np.testing.assert_allclose(pair.run(logsumexp), [expected] * 2, rtol=1e-6)


def test_errors_come_back_from_each(pair):
    def only_in_one():
        if jax.process_index() == 1:
            raise KeyError("here")
        return "well"

    with pytest.raises(RemoteError, match=r"^process 1: KeyError: 'here'$") as raised:
        pair.run(only_in_one)
    assert raised.value.errors == {1: "KeyError: 'here'"}

    def no_pickle():
        return lambda: 0

    with pytest.raises(RemoteError, match="pickle"):
        pair.run(no_pickle)
    assert pair.run(power, 2, 3) == [8, 8]  # and they go on


def test_what_cannot_be_sent_is_refused(pair):
    n = 3

    def encloses():
        return n

    for f in (lambda: 0, encloses, os.getpid, Processes, None):
        with pytest.raises(TypeError, match="made by def"):
            pair.start(f)
    with pytest.raises(ValueError, match="there are processes 0 to 1"):
        pair.start(who, on=[2])
    with pytest.raises(ValueError, match="at least 1 of each"):
        Processes(2, devices=0)


def test_a_collective_of_one_waits_and_is_finished_by_the_other(pair):
    assert pair.run(total) == [22.0, 22.0]
    pair.start(total, on=[0])
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^not back within 0.5 s: process 0$"):
        pair.wait(0.5)
    assert time.monotonic() - begin < 30
    with pytest.raises(RuntimeError, match="not been waited for"):
        pair.start(total)
    pair.start(total, on=[1])
    assert pair.wait(LIMIT_S) == {0: 22.0, 1: 22.0}
    assert pair.wait(0) == {}


def test_an_answer_is_kept_while_another_is_waited_for(pair):
    def late():
        import time

        time.sleep(3 if jax.process_index() == 0 else 0)
        return jax.process_index()

    pair.start(late)
    with pytest.raises(TimeoutError, match=r"process 0$"):
        pair.wait(1)
    with pytest.raises(RuntimeError, match="process 1 has not been waited for"):
        pair.start(late, on=[1])
    assert pair.wait(LIMIT_S) == {0: 0, 1: 1}


def test_the_mesh_decides_whose_rows_are_whose(pair):
    def turned():
        mesh = jax.sharding.Mesh(jax.devices()[::-1], "data")
        mine = np.arange(2) + 10 * jax.process_index()
        sharding = jax.NamedSharding(mesh, jax.P("data"))
        y = jax.make_array_from_process_local_data(sharding, mine.astype(np.int32))
        whole = multihost_utils.process_allgather(y, tiled=True)  # noqa: F821
        return y.is_fully_addressable, whole.tolist()

    assert pair.run(turned) == [(False, [10, 11, 0, 1])] * 2


def test_only_some_calls_need_the_others(pair):
    def alone():
        part = jax.make_array_from_process_local_data(rows, np.ones(2, np.float32))
        jax.make_array_from_callback((4,), rows, lambda i: np.ones(4, np.float32)[i])
        double = jax.jit(lambda x: 2 * x)
        double.lower(part).compile()
        jax.jit(jax.numpy.sum).lower(x).compile()
        last = double(x).addressable_shards[1].data[0]
        return float(last) + float(jax.numpy.ones(4).sum()) + len(str(x)) * 0

    pair.start(alone, on=[1])
    assert pair.wait(LIMIT_S) == {1: 2 * 11.0 + 4}

    def dispatched():
        return type(jax.jit(jax.numpy.sum)(x)).__name__

    pair.start(dispatched, on=[0])  # the call alone returns
    assert pair.wait(LIMIT_S) == {0: "ArrayImpl"}
    pair.start(dispatched, on=[1])
    pair.wait(LIMIT_S)


def test_a_save_by_orbax_waits_for_all(pair, tmp_path):
    def save(folder):
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(f"{folder}/step", {"x": x})

    pair.start(save, str(tmp_path), on=[0])
    with pytest.raises(TimeoutError):
        pair.wait(5)
    assert not (tmp_path / "step").exists()
    pair.start(save, str(tmp_path), on=[1])
    pair.wait(LIMIT_S)
    written = {path.name for path in (tmp_path / "step").iterdir()}
    assert {"ocdbt.process_0", "ocdbt.process_1"} <= written


def test_initialize_comes_first_and_waits_as_the_page_says():
    jax.devices()
    with pytest.raises(RuntimeError, match="must be called before"):
        jax.distributed.initialize("127.0.0.1:1", 1, 0)
    defaults = inspect.signature(jax.distributed.initialize).parameters
    assert defaults["initialization_timeout"].default == 300
    assert defaults["heartbeat_timeout_seconds"].default == 100


def test_a_killed_process_ends_the_other_and_both_are_told():
    with Processes(2, devices=1, heartbeat_s=3, limit_s=LIMIT_S) as pair:
        pids = [popen.pid for popen in pair._popens]
        pair.kill(1)
        pair.start(who, on=[1])
        with pytest.raises(RemoteError, match=r"^process 1: ended by SIGKILL$"):
            pair.wait(LIMIT_S)
        wait_until(lambda: pair._popens[0].poll() is not None, LIMIT_S)
        assert pair._popens[0].returncode == -signal.SIGABRT
        assert "another task died" in pair.said(0)
    assert not any(map(alive, pids))


ORPHANS = """
import time
from seejax.lesson.processes import Processes
pair = Processes(2, devices=1)
def meet():
    multihost_utils.sync_global_devices("never")
pair.run(meet)
pair.start(meet, on=[0])
print(*[popen.pid for popen in pair._popens], flush=True)
time.sleep(1000)
"""


def test_no_process_outlives_the_one_that_made_it(tmp_path):
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS, "utf8")
    parent = Process(sys.executable, script)
    parent.wait_for("\n")
    pids = [int(pid) for pid in parent.out.text.split()]
    assert all(map(alive, pids))
    os.kill(parent.popen.pid, signal.SIGKILL)  # it alone, not its group
    parent.popen.wait()
    wait_until(lambda: not any(map(alive, pids)), LIMIT_S)
