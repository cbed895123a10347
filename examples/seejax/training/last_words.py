"""One sentence where JAX's runtime ends a process with a stack trace.

A process that waits for another in an all-reduce is out of Python's reach: no exception comes up
in it, no handler runs. When the other has died, JAX misses its heartbeat and aborts the waiting
process from a thread in C++, with twenty lines on stderr and SIGABRT. There is no public way to be
asked first. So the command's stderr goes through this small process, which holds back those lines,
and says in one what they say. All else it hands on as it comes.
"""

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator

FATAL = b"Terminating process because the JAX distributed service"
BEGINS = re.compile(rb"[EF]\d{4} .* (coordination_service\w*\.cc|client\.h):\d+\] ")
NOISE = re.compile(rb"^\[Gloo\] Rank")  # reports of its connections

DEAD = "process {} has died or cannot be reached, and without it no other can go on"
CAUSES = {
    rb"(\d+) unexpectedly tried": "two processes have --process-id {}: give each another",
    rb"stopped sending heartbeats\):\n([\d, ]+)": DEAD,
    rb"Failed to send RPC to coordination service": DEAD.format(0),
    rb"RegisterTask|timed out": "not all processes came in time: start each with the same address "
    "and number, and an id of its own",
    rb"": "another process has died, and without it no other can go on",
}


def sentence(said: bytes) -> str:
    """What JAX's last lines come to.

    >>> sentence(b"tasks are unhealthy (stopped sending heartbeats):\\n1\\nThe tasks have crashed")
    'process 1 has died or cannot be reached, and without it no other can go on'
    """
    for pattern, meaning in CAUSES.items():
        if found := re.search(pattern, said):
            return meaning.format(*(group.decode().strip() for group in found.groups()))
    raise AssertionError


def filtered(lines: Iterable[bytes], before: str, after: str) -> Iterator[bytes]:
    """The same lines; from where the runtime begins to end the process, one sentence.

    None where the process has said itself why it ends: its line has `before`, too.

    >>> fatal = [b"F0101 1 client.h:86] " + FATAL + b": Deadline\\n", b"@ 0x1\\n"]
    >>> list(filtered([b"hello\\n", *fatal], "error: ", ""))[0]
    b'hello\\n'
    >>> list(filtered([fatal[0], b"error: Gloo\\n", fatal[1]], "error: ", ""))
    [b'error: Gloo\\n']
    """
    held, told = b"", False
    for line in lines:
        if before.encode() in line:  # after a bar of tqdm, say
            told = True
            yield line
        elif held or BEGINS.search(line):
            held += line
        elif not NOISE.search(line):
            yield line
    if FATAL in held and not told:
        yield f"{before}{sentence(held)}{after}\n".encode()
    elif held and not told:
        yield held


def catch(before: str, after: str) -> None:
    """From now on this process' stderr goes through another, until the end of both."""
    reader, writer = os.pipe()
    command = [sys.executable, "-ES", __file__, before, after]
    os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)])
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # they are sent to all; this one ends by itself
    with open(0, "rb") as source:
        for part in filtered(iter(source.readline, b""), *sys.argv[1:]):
            os.write(2, part)
