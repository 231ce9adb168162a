"""Deletes keys through one replica, and asks the others for how long they are still allowed."""

import collections
import threading
import time

# Seconds for one request that deletes, after which another replica is asked.
DELETE_SECONDS = 3
# A key that is still allowed after so long is no longer asked for.
PROBE_SECONDS = 60


class Revocation:
    """Keys that every replica has in memory. One is deleted each second while a fault lasts."""

    def __init__(self, tenant, keepers):
        self.tenant, self.keepers = tenant, keepers
        self.stock, self.made = [], 0
        # For each way the seconds between an acknowledged deletion and the last time that the key was allowed.
        self.allowed = collections.defaultdict(list)
        self.deleted, self.wrong = 0, []

    def prepare(self, number):
        """Makes keys, and uses each at every replica."""
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
        """Returns what a replica decides, or None if it doesn't."""
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
                # 404: an earlier try has deleted it, though its answer didn't come.
                if status in (200, 404):
                    self.deleted += 1
                    for other in self.keepers:
                        if other is not keeper:
                            probe = threading.Thread(target=self.probe, args=[other, secret, time.monotonic()], daemon=True)
                            self.probes.append(probe)
                            probe.start()
                    break
                if status not in (0, 503):
                    self.wrong.append(f"{keeper.name}: a key is deleted with {status}")
                self.stopped.wait(0.1)

    def probe(self, keeper, secret, deleted):
        """Asks until the key has been refused for a second."""
        last, refused = deleted, None
        while time.monotonic() < deleted + PROBE_SECONDS:
            asked = time.monotonic()
            allowed = self.is_allowed(keeper, secret)
            if allowed:
                # The time of the request: the decision is later than this.
                last, refused = asked, None
            elif allowed is False:
                refused = refused or asked
                if asked - refused > 1:
                    break
            elif self.stopped.is_set():
                break
            # Less often when it lasts.
            time.sleep(0.05 if asked - deleted < 2 else 0.5)
        with self.lock:
            self.allowed[keeper.way].append(last - deleted)

    def longest(self):
        """Returns the longest time for each way."""
        return {way: max(seconds) for way, seconds in self.allowed.items()}
