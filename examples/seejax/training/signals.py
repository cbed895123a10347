"""Ctrl-C and SIGTERM, which ask a run to stop where it can be saved."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Signals:
    """Ctrl-C and SIGTERM ask the run to stop where it can be saved; Ctrl-C again ends it."""

    def __init__(self) -> None:
        self.received: int | None = None

    def asked(self) -> bool:
        return self.received is not None

    def _ask(self, number: int, _: object) -> None:
        self.received = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.write(2, b"\nstopping; Ctrl-C again to end at once\n")

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """From here on they ask. Before, there is nothing to save, and they end the process."""
        main_thread = threading.current_thread() is threading.main_thread()  # a rule of Python's
        taken = (signal.SIGINT, signal.SIGTERM) if main_thread else ()
        before = {number: signal.getsignal(number) for number in taken}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
