"""What a process holds, to see that it gives it back."""
import os
import re
from collections import Counter
from dataclasses import dataclass

SANITIZED = bool(os.environ.get("FARLIFT_SANITIZER"))  # memory is then the sanitizer's affair


@dataclass
class Resources:
    descriptors: Counter  # by kind; without the memory of segments
    threads: Counter      # by name; without the allocator's own, which come with the processors it has been used on
    rss_bytes: int        # anonymous: segments, which are shared memory, count elsewhere
    heap_bytes: int       # live bytes of the allocator, without segments; 0 where nobody tells

    def __str__(self) -> str:
        def listed(counts: Counter) -> str:
            return ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))

        return (f"[{listed(self.descriptors)}; {listed(self.threads)}; {self.rss_bytes / 2**20:.1f} MiB resident, "
                f"{self.heap_bytes / 2**20:.2f} MiB of heap]")

    def is_back_at(self, start: "Resources", rss_slack: int, heap_slack: int) -> bool:
        """Descriptors and threads to the last one; memory within the slack, which must be far below what a leak per
        round would add up to."""
        if self.descriptors - start.descriptors or self.threads - start.threads:
            return False
        return SANITIZED or (self.rss_bytes <= start.rss_bytes + rss_slack and
                             self.heap_bytes <= start.heap_bytes + heap_slack)


def of_process(pid: int, heap_bytes: int = 0) -> Resources:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        resident = 1024 * int(re.search(r"RssAnon:\s*(\d+)", file.read())[1])
    descriptors, threads = Counter(), Counter()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            kind = re.sub(r"\W*\d+\]?$", "", os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue  # it has just been closed
        if "memfd:" not in kind:
            descriptors[kind] += 1
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
                name = file.read().strip()
        except OSError:
            continue  # it has just ended
        if name != "jemalloc_bg_thd":
            threads[name] += 1
    return Resources(descriptors, threads, resident, heap_bytes)


def of_server(server) -> Resources:
    return of_process(server.pid, server.info("memory")["allocator_allocated"] - server.counter("dram_capacity_bytes"))
