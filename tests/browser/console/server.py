"""A server of the program under test on SQLite, started as an operator starts it."""

import glob
import os
import pathlib
import socket
import subprocess
import urllib.request

from stripe_account import StripeAccount
from waits import until

SETTINGS = {
    "LIMITS__READS_PER_MINUTE": "100000",
    "LIMITS__WRITES_PER_MINUTE": "100000",
    "LIMITS__LOGINS_PER_MINUTE": "200",
    "LIMITS__REGISTRATIONS_PER_MINUTE": "200",
    "LIMITS__MAILS_PER_ACCOUNT_HOUR": "1000",
    "BILLING__ISSUER_NAME": "Toll & Keeper Ltd",
    "BILLING__ISSUER_ADDRESS": "1 Bridge Street",
    "LOG__ACCESS": "false",
    # Operators use pages that require a recent sign-in for as long as the suite runs.
    "SIGN_IN__FRESH_MINUTES": "60",
}


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


class Server:
    """A server with its folder. The log is in the file `server.log` of this folder."""

    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "tollkeeper-data"
        listen, service = free_address(), free_address()
        self.url, self.service = f"http://{listen}", f"http://{service}"
        self.settings = {f"TOLLKEEPER_{name}": value for name, value in SETTINGS.items()}
        self.settings |= {"TOLLKEEPER_LISTEN": listen, "TOLLKEEPER_SERVICE_LISTEN": service}
        # The server starts without sign-in providers.
        self.providers = self.folder.absolute() / "providers.toml"
        self.providers.write_text("")
        self.settings |= {"TOLLKEEPER_SIGN_IN__PROVIDERS_FILE": str(self.providers)}
        self.settings |= StripeAccount(self.folder).settings
        self.process = None

    def start(self, days_ago=0):
        """Starts the server, optionally on a day in the past, and waits until it is ready."""
        clock = {}
        if days_ago:
            library = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), "/usr/lib/faketime/libfaketime.so.1")
            clock = {"LD_PRELOAD": library, "FAKETIME": f"-{days_ago}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                     "FAKETIME_DISABLE_SHM": "1"}
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen([self.program], cwd=self.folder, env=self.settings | clock, stdout=log, stderr=log)
        until("the server", lambda: urllib.request.urlopen(f"{self.url}/readyz").status == 200)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def command(self, *words):
        """Runs a command of the program in the server's folder."""
        ended = subprocess.run([self.program, *words], cwd=self.folder, env=self.settings, capture_output=True, text=True)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout
