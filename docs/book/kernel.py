"""One page's kernel: how it is started, what it is told, which of its cells measure time.

This file is part of every page's key: a change here executes them all.
"""

import ast
import re
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from book.forkserver import ForkedProvisioner, ForkServer
from book.keys import code_cells
from book.machine import Machine

CELL_TIMEOUT_S = 300
SOCKET_CHARS = 100  # of a path; the system allows 107

CLOCKS = {"time", "timeit", "timeline", "perf_counter", "process_time", "monotonic"}


def shorten_errors(notebook: nbformat.NotebookNode) -> None:
    """Show an expected error as its name and message: no path or address, no frames inside JAX."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error":
                message = re.sub(r"\S*/ipykernel_\d+/\d+\.py", "<cell>", output.evalue)
                message = re.sub(r" at 0x[0-9a-f]+", "", message)
                output.traceback = [f"{output.ename}: {message}"]


def timing_cells(cells: list[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """The cells that name a clock, or a function that an earlier one of them defined.

    >>> sources = ["from timeit import repeat as r", "def ms(f): return r(f)", "f = 1", "ms(f)"]
    >>> cells = [nbformat.v4.new_code_cell(source) for source in sources]
    >>> [cells.index(cell) for cell in timing_cells(cells)]
    [0, 1, 3]
    """
    clocks = set(CLOCKS)
    for cell in cells:
        try:
            tree = ast.parse(TransformerManager().transform_cell(cell.source))
        except SyntaxError:  # a cell of another language
            if clocks & set(re.findall(r"\w+", cell.source)):
                yield cell
            continue
        if clocks & names_in(tree):
            yield cell
        for part in tree.body:
            if clocks & names_in(part):
                if isinstance(part, ast.FunctionDef):
                    clocks.add(part.name)
                elif isinstance(part, ast.ImportFrom):  # perhaps by another name
                    clocks |= names_in(part)


def names_in(tree: ast.AST) -> set[str]:
    """Every name that code reads, calls, imports or hands to a magic command."""
    fields = ("id", "attr", "module", "name", "asname", "value")
    found = (getattr(node, field, None) for node in ast.walk(tree) for field in fields)
    return {name for name in found if isinstance(name, str)}


class Kernel(NotebookClient):
    """Runs one page: starting and computing share the machine, measuring has it for itself."""

    def __init__(
        self,
        notebook: nbformat.NotebookNode,
        machine: Machine,
        folder: str,
        server: ForkServer | None = None,
    ) -> None:
        super().__init__(
            notebook,
            timeout=CELL_TIMEOUT_S,
            shutdown_kernel="immediate",
            record_timing=False,  # it would change the metadata that the key holds
            resources={"metadata": {"path": folder}},
            extra_arguments=[
                "--log-level=40",  # it warns that it talks over localhost
                "--InteractiveShell.xmode=Plain",  # frames of JAX in colour take seconds
                "--InlineBackend.figure_formats=svg",  # light, sharp, and clear on both grounds
            ],
        )
        self.machine = machine
        self.server = server
        self.cell: nbformat.NotebookNode | None = None  # that runs, or ran last
        self.measuring = {id(cell) for cell in timing_cells(code_cells(notebook))}

    def create_kernel_manager(self) -> KernelManager:
        """Over sockets of its own: a port that was free may be taken before the kernel has it."""
        km = super().create_kernel_manager()
        self.sockets = tempfile.TemporaryDirectory(prefix="kernel-")
        if len(path := f"{self.sockets.name}/socket-9") <= SOCKET_CHARS:
            km.transport, km.ip = "ipc", path.removesuffix("-9")
        return km

    async def _async_cleanup_kernel(self) -> None:
        try:
            await super()._async_cleanup_kernel()
        finally:
            self.sockets.cleanup()

    async def async_start_new_kernel(self, **options: Any) -> None:
        if self.server:
            self.fork_from(self.server)
        async with self.machine.shared():
            await super().async_start_new_kernel(**options)
            await self.async_start_new_kernel_client()

    def fork_from(self, server: ForkServer) -> None:
        assert self.km
        self.km.kernel_id = str(uuid.uuid4())
        self.km.provisioner = ForkedProvisioner(
            kernel_id=self.km.kernel_id, kernel_spec=self.km.kernel_spec, parent=self.km
        )
        self.km.provisioner.server = server

    async def async_execute_cell(self, cell, *args, **options):
        if cell.cell_type != "code":
            return cell
        turn = self.machine.alone if id(cell) in self.measuring else self.machine.shared
        async with turn():
            self.cell = cell
            return await super().async_execute_cell(cell, *args, **options)

    async def _async_check_alive(self) -> None:
        if self.kc is None:  # the page was cancelled, but not what watches its kernel
            raise DeadKernelError("stopped")
        await super()._async_check_alive()
