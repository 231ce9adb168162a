"""One start of a client: its output with times, and its requests."""

import os
import re
import signal
import subprocess
import threading
import time


def squeeze(text):
    """Returns the text without characters that terminals, JSON and frames add."""
    text = re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)", "", text)
    return re.sub(r"[\s\\\"│┃|>]+", "", text)


class Start:
    """A run of a client. It is watched until the client exits or a timeout expires."""

    def __init__(self, command, environment, folder, recorder, seconds, expected, own_words=None):
        self.expected, self.own_words = expected, own_words
        self.recorder, self.printed, self.shown_at, self.by_itself = recorder, b"", None, False
        self.began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        reader = threading.Thread(target=self.read, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            process.wait(seconds)
            self.by_itself = True
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.seconds = time.monotonic() - self.began
            end(process)
        reader.join(5)

    def read(self, pipe):
        while piece := os.read(pipe.fileno(), 65536):
            self.printed += piece
            if self.shown_at is None and self.is_shown():
                self.shown_at = time.monotonic()

    @property
    def output(self):
        return self.printed.decode("utf-8", "replace")

    def is_shown(self):
        """Returns whether the client has shown the expected text, or otherwise the message of a refusal."""
        output = squeeze(self.output)
        if self.expected:
            return squeeze(self.expected) in output
        said = [request.message for request in self.requests() if request.message]
        return any(squeeze(one) in output for one in said + [self.own_words] if one)

    def requests(self):
        return list(self.recorder.requests)

    def refusals(self):
        """Returns the calls that were refused."""
        return [one for one in self.requests() if one.status and one.status >= 400 and one.method == "POST"]

    def codes(self):
        return {str(one.code) for one in self.refusals()}

    def after_refusal(self):
        """Returns the seconds between the first refusal and the time when it was shown, or None if it wasn't shown."""
        refused = self.refusals()
        if self.shown_at is None or not refused:
            return None
        return max(0.0, self.shown_at - refused[0].at)

    def says_it_in_own_words(self):
        said = [request.message for request in self.requests() if request.message]
        return self.own_words and not any(squeeze(one) in squeeze(self.output) for one in said)


def end(process):
    """Ends a client and all processes in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            continue
