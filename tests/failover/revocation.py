"""Deletes keys through one replica, and measures how long the other replicas still allow them."""

import collections
import threading
import time

# Timeout of a deletion in seconds. After it, another replica is used.
DELETE_SECONDS = 3
# A key that is still allowed after this number of seconds is no longer checked.
PROBE_SECONDS = 60


class Revocation:
    """Keys that every replica has in memory. During a fault, one of them is deleted every second."""

    def __init__(self, tenant, keepers):
        self.tenant, self.keepers = tenant, keepers
        self.stock, self.made = [], 0
        # For each way, the seconds from an acknowledged deletion until the key was last allowed.
        self.allowed = collections.defaultdict(list)
        self.deleted, self.wrong = 0, []

    def prepare(self, number):
        """Creates keys, and uses each of them at every replica."""
        self.allowed.clear()
        self.deleted, self.wrong = 0, []
        while len(self.stock) < number:
            self.made += 1
            self.stock.append(self.tenant.make_key(f"Probe {self.made}"))
        for _, secret in self.stock:
            for keeper in self.keepers:
                for _ in range(50):
                    if self.is_allowed(keeper, secret):
                        break
                    time.sleep(0.1)
                else:
                    raise RuntimeError(f"{keeper.name} doesn't allow a new key")

    def start(self):
        self.stopped, self.lock, self.probes = threading.Event(), threading.Lock(), []
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join()
        for probe in self.probes:
            probe.join()

    @staticmethod
    def is_allowed(keeper, secret, seconds=5):
        """Returns a replica's decision, or None without a response."""
        question = {"credential": secret, "operation": "models", "reserve": False}
        answer = keeper.ask("POST", "/service/v1/authorize", question, seconds)
        return answer.json["allowed"] if answer.status == 200 else None

    def work(self):
        turn = 0
        while self.stock and not self.stopped.wait(1):
            identity, secret = self.stock.pop()
            for _ in range(20):
                keeper = self.keepers[turn % len(self.keepers)]
                turn += 1
                if self.stopped.is_set():
                    return
                status = self.tenant.call(keeper, "DELETE", f"{self.tenant.keys}/{identity}", seconds=DELETE_SECONDS).status
                # 404: an earlier attempt has deleted the key, but its response was lost.
                if status in (200, 404):
                    self.deleted += 1
                    for other in self.keepers:
                        if other is not keeper:
                            probe = threading.Thread(target=self.probe, args=[other, secret, time.monotonic()], daemon=True)
                            self.probes.append(probe)
                            probe.start()
                    break
                if status not in (0, 503):
                    self.wrong.append(f"{keeper.name}: deleting a key returned {status}")
                self.stopped.wait(0.1)

    def probe(self, keeper, secret, deleted):
        """Checks the key until it has been refused for a second."""
        last, refused = deleted, None
        while time.monotonic() < deleted + PROBE_SECONDS:
            asked = time.monotonic()
            allowed = self.is_allowed(keeper, secret)
            if allowed:
                # The time of the request. The decision is made later.
                last, refused = asked, None
            elif allowed is False:
                refused = refused or asked
                if asked - refused > 1:
                    break
            elif self.stopped.is_set():
                break
            # The checks become less frequent with time.
            time.sleep(0.05 if asked - deleted < 2 else 0.5)
        with self.lock:
            self.allowed[keeper.way].append(last - deleted)

    def longest(self):
        """Returns the longest time per way."""
        return {way: max(seconds) for way, seconds in self.allowed.items()}
