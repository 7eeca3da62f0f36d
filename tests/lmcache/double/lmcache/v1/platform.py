"""The notifier behind an event descriptor."""
import os


class Notifier:
    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def notify(self) -> None:
        if self._descriptor < 0:
            raise OSError("notified after it was closed")
        os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def create_event_notifier() -> Notifier:
    return Notifier()


def consume_fd(descriptor: int) -> None:
    os.eventfd_read(descriptor)
