"""A lane: the queue, the threads, the results and the event descriptor of one kind of task.

Invariants: a task that was accepted gets exactly one result, whatever happens; a result is handed out once. A task that
waited longer than the queue limit is failed without being started. After close() no thread of the lane runs, and tasks
submitted later have failed at once.
Threads: every method from any thread; ``run`` and ``failed`` on the lane's threads, and ``failed`` in submit() and close().
"""
import collections
import threading
import time
from typing import Any, Callable, Dict, Optional

from .interface import create_event_notifier, logger


class Lane:
    """run(task) -> result; failed(task) -> the result of a task that was not run or whose run raised."""

    def __init__(self, name: str, threads: int, queue_limit_s: float, run: Callable[[Any], Any], failed: Callable[[Any], Any]):
        self.name = name
        self._run, self._failed, self._queue_limit_s = run, failed, queue_limit_s
        self._waiting: "collections.deque" = collections.deque()
        self._results: Dict[int, Any] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._running = 0
        self.expired = 0
        self.errors = 0
        self._notifier = create_event_notifier()
        self._open = True
        self.fileno = self._notifier.fileno()
        self._threads = [threading.Thread(target=self._work, name=f"farlift-{name}-{i}", daemon=True) for i in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, task_id: int, task: Any) -> None:
        with self._changed:
            if not self._closing:
                self._waiting.append((task_id, task, time.monotonic()))
                self._changed.notify()
                return
        self._finish(task_id, self._failed(task))

    def submit_failed(self, task_id: int, task: Any) -> None:
        """A task that is wrong in itself."""
        self._finish(task_id, self._failed(task))

    def take(self, task_id: int) -> Optional[Any]:
        with self._changed:
            return self._results.pop(task_id, None)

    def take_all(self) -> Dict[int, Any]:
        with self._changed:
            results, self._results = self._results, {}
        return results

    def status(self) -> Dict[str, Any]:
        with self._changed:
            return {"waiting": len(self._waiting), "running": self._running, "untaken_results": len(self._results),
                    "expired_in_queue": self.expired, "unexpected_errors": self.errors}

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def stop_intake(self) -> None:
        """Fails what waits; what runs goes on."""
        with self._changed:
            self._closing = True
            waiting, self._waiting = list(self._waiting), collections.deque()
            self._changed.notify_all()
        for task_id, task, _ in waiting:
            self._finish(task_id, self._failed(task))

    def join(self) -> None:
        """After stop_intake(): until no thread runs."""
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def close_notifier(self) -> None:
        with self._changed:
            if self._open:
                self._open = False
                self._notifier.close()

    def _finish(self, task_id: int, result: Any) -> None:
        with self._changed:
            self._results[task_id] = result
            if self._open:
                self._notifier.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                task_id, task, since = self._waiting.popleft()
                self._running += 1
            try:
                result = self._result(task, since)
            finally:
                with self._changed:
                    self._running -= 1
            self._finish(task_id, result)

    def _result(self, task: Any, since: float) -> Any:
        try:
            if time.monotonic() - since <= self._queue_limit_s:
                return self._run(task)
            self.expired += 1
        except Exception:  # noqa: BLE001 - nothing may end the thread, nor reach LMCache
            self.errors += 1
            logger.exception("farlift: a %s task failed unexpectedly", self.name)
        return self._failed(task)
