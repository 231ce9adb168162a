"""Reports usage to every replica, and records the acknowledged events."""

import collections
import secrets
import threading
import time

from keepers import MODEL

EVENTS = 5
# Seconds between two single bookings, each on a new connection.
TICK = 0.25
MAX_WAITING = 60


class Load:
    """Threads for each replica: batches, reservations with captures, and concurrent single events."""

    def __init__(self, tenant, keepers, source):
        self.tenant, self.keepers, self.source = tenant, keepers, source
        self.stopped, self.lock, self.threads = threading.Event(), threading.Lock(), []
        # All sent events; for each acknowledged event, its way and the times of the request and the response.
        self.sent, self.acknowledged = {}, {}
        # The times at which single events were acknowledged, by way.
        self.singles = collections.defaultdict(list)
        self.refusals, self.wrong = collections.Counter(), []

    def start(self):
        self.began = time.monotonic()
        for keeper in self.keepers:
            for work in (self.batches, self.pairs, self.ticks):
                thread = threading.Thread(target=work, args=[keeper], daemon=True)
                self.threads.append(thread)
                thread.start()

    def stop(self):
        """Waits until all requests have ended."""
        self.stopped.set()
        for thread in list(self.threads):
            thread.join()
        self.ended = time.monotonic()

    def send(self, keeper, events):
        """Sends events once. Returns whether all of them were acknowledged."""
        with self.lock:
            self.sent.update((event["id"], event) for event in events)
        began = time.monotonic()
        answer = keeper.ask("POST", "/service/v1/usage", {"events": events})
        ended = time.monotonic()
        if answer.status != 200:
            with self.lock:
                self.refusals[f"{answer.status} {answer.code()}"] += 1
                if answer.status not in (0, 503):
                    self.wrong.append(f"{keeper.name}: {answer.status} {answer.json}")
            return False
        with self.lock:
            for result in answer.json["results"]:
                if result["status"] in ("accepted", "duplicate"):
                    self.acknowledged.setdefault(result["id"], (keeper.way, began, ended))
                else:
                    self.wrong.append(f"{keeper.name}: {result}")
        return True

    def insist(self, keeper, events):
        """Sends events with the same ids until they are acknowledged."""
        while not self.send(keeper, events):
            if self.stopped.wait(0.2):
                return

    def batches(self, keeper):
        while not self.stopped.wait(0.05):
            self.insist(keeper, [self.tenant.event(self.source) for _ in range(EVENTS)])

    def pairs(self, keeper):
        """Makes a reservation, and captures it with an event."""
        while not self.stopped.wait(0.1):
            question = {"credential": self.tenant.key[1], "operation": "chat", "model": MODEL, "max_tokens": 10,
                        "estimated_prompt_tokens": 10, "request_id": secrets.token_hex(8)}
            answer = keeper.ask("POST", "/service/v1/authorize", question)
            if answer.status != 200 or not answer.json["allowed"]:
                with self.lock:
                    self.refusals[f"{answer.status} {answer.code() or answer.json.get('code')}"] += 1
                self.stopped.wait(0.2)
                continue
            event = self.tenant.event(self.source) | {"reservation_id": answer.json["reservation"]["id"]}
            self.insist(keeper, [event])

    def ticks(self, keeper):
        waiting = threading.Semaphore(MAX_WAITING)
        threads = []

        def book():
            if self.send(keeper, [self.tenant.event(self.source)]):
                with self.lock:
                    self.singles[keeper.way].append(time.monotonic())
            waiting.release()

        while not self.stopped.wait(TICK):
            if waiting.acquire(blocking=False):
                threads.append(threading.Thread(target=book, daemon=True))
                threads[-1].start()
                threads = [thread for thread in threads if thread.is_alive()]
        for thread in threads:
            thread.join()

    def gaps(self):
        """Returns the longest time without an acknowledged single event, for each way."""
        found = {}
        with self.lock:
            for way in {keeper.way for keeper in self.keepers}:
                times = [self.began, *sorted(self.singles[way])]
                found[way] = max((after - before for before, after in zip(times, times[1:], strict=False)), default=0)
                if len(times) < 3:
                    found[way] = self.ended - self.began
        return found

    def wrote_since(self, moment):
        """Returns the ways on which a single event was acknowledged since then."""
        with self.lock:
            return {way for way, times in self.singles.items() if times and max(times) > moment}

    def acknowledged_between(self, begin, end):
        """Returns the events that were both sent and acknowledged in this period."""
        with self.lock:
            return [one for one, (_, sent, answered) in self.acknowledged.items() if begin < sent and answered < end]
