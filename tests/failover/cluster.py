"""A Patroni cluster on 127.0.0.1, with the files of packaging/patroni and our addresses, folders and passwords."""

import base64
import http.client
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import time

import processes
from processes import Process, until

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "patroni"
PASSWORDS = {name: secrets.token_hex(12) for name in (
    "RESTAPI_PASSWORD", "SUPERUSER_PASSWORD", "REPLICATION_PASSWORD", "REWIND_PASSWORD", "KEEPER_PASSWORD",
    "SERVICE_TOKEN")} | {"MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode()}
PACKAGED_NODES = 3


def fill(name, changes):
    """Returns a packaged file, with its documented values replaced."""
    text = (PACKAGING / name).read_text()
    for documented, here in changes:
        if documented not in text:
            raise SystemExit(f"packaging/patroni/{name} has no {documented!r}")
        text = text.replace(documented, str(here))
    for placeholder, password in PASSWORDS.items():
        text = re.sub(rf"\b{placeholder}\b", password, text)
    return text


def etcd_key():
    """Returns Patroni's key for etcd: versions up to 3.0 lose commits with the newer API."""
    said = subprocess.run([processes.find("patroni"), "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    return "etcd3:" if version >= (3, 1) else "etcd:"


class Node:
    """A node of the cluster: Patroni, and the PostgreSQL server that it controls."""

    def __init__(self, cluster, number, port, rest):
        self.cluster, self.name, self.port, self.rest = cluster, f"db{number}", port, rest
        self.folder = cluster.folder / self.name
        self.data = self.folder / "data"
        cluster.make_folder(self.folder)
        text = fill("patroni.yml", cluster.patroni_changes(self))
        cluster.write(self.folder / "patroni.yml", text)
        self.patroni = Process([processes.find("patroni"), str(self.folder / "patroni.yml")],
                               cluster.logs / f"{self.name}.log", self.folder)

    def ask(self, method, path, body=None, seconds=3):
        """Returns the status and the body of a response of Patroni's API; the status is 0 without a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rest, timeout=seconds)
        token = base64.b64encode(f"patroni:{PASSWORDS['RESTAPI_PASSWORD']}".encode()).decode()
        try:
            connection.request(method, path, body and json.dumps(body), {"authorization": f"Basic {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def postgres(self):
        """Returns all processes of the node's PostgreSQL server."""
        pid = processes.postmaster(self.data)
        return processes.family(pid) if pid else []

    def walsenders(self):
        """Returns the processes that send changes to standbys."""
        found = []
        for pid in self.postgres():
            try:
                if b"walsender" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
            except OSError:
                pass
        return found

    def kill_postgres(self):
        """Kills PostgreSQL, as if the machine had failed."""
        processes.signal_all(self.postgres(), signal.SIGKILL)

    def kill(self):
        """Kills Patroni first, so that it can't start PostgreSQL again."""
        self.patroni.end()
        self.kill_postgres()

    def pause(self):
        self.patroni.send(signal.SIGSTOP)
        processes.signal_all(self.postgres(), signal.SIGSTOP)

    def resume(self):
        processes.signal_all(self.postgres(), signal.SIGCONT)
        self.patroni.send(signal.SIGCONT)

    def end(self):
        """Stops both. PostgreSQL isn't in Patroni's process group."""
        self.patroni.end()
        pids = self.postgres()
        processes.signal_all(pids, signal.SIGKILL)
        for _ in range(100):
            states = processes.parents()
            if not any(pid in states and states[pid][1] != "Z" for pid in pids):
                return
            time.sleep(0.05)

    def sql(self, statement, database="keeper", seconds=30):
        """Runs a statement as the superuser, and returns the lines of its output."""
        words = [os.path.join(self.cluster.binaries, "psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U",
                 "postgres", "-d", database, "-v", "ON_ERROR_STOP=1"]
        environment = {"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORDS["SUPERUSER_PASSWORD"],
                       "PGCONNECT_TIMEOUT": "5"}
        ended = subprocess.run(words, input=statement, capture_output=True, text=True, timeout=seconds, check=False,
                               env=environment)
        if ended.returncode:
            raise RuntimeError(f"{self.name}: {statement[:100]}: {ended.stderr.strip()[-300:]}")
        return ended.stdout.splitlines()


class Cluster:
    """etcd, the nodes, HAProxy in front of them, and PgBouncer in front of HAProxy."""

    def __init__(self, folder, logs, nodes, etcds=1, asynchronous=False):
        self.folder, self.logs, self.asynchronous = folder, logs, asynchronous
        self.binaries, self.user = processes.find_postgres(), processes.unprivileged()
        self.etcd_key = etcd_key()
        ports = processes.free_ports(2 * nodes + 2 * etcds + 2)
        self.haproxy_port, self.pgbouncer_port = ports.pop(), ports.pop()
        self.etcd_ports = [(ports.pop(), ports.pop()) for _ in range(etcds)]
        self.etcds = [self.make_etcd(number) for number in range(1, etcds + 1)]
        self.nodes = [Node(self, number, ports.pop(), ports.pop()) for number in range(1, nodes + 1)]
        self.haproxy, self.pgbouncer = self.make_haproxy(), self.make_pgbouncer()

    def make_folder(self, path):
        path.mkdir()
        path.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def write(self, path, text):
        path.write_text(text)
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    # Files from their templates

    def make_etcd(self, number):
        folder = self.folder / f"etcd{number}"
        self.make_folder(folder)
        client, peer = self.etcd_ports[number - 1]
        members = ",".join(f"etcd{other + 1}=http://127.0.0.1:{ports[1]}" for other, ports in enumerate(self.etcd_ports))
        packaged = ",".join(f"etcd{other}=http://etcd{other}.internal:2380" for other in range(1, PACKAGED_NODES + 1))
        text = fill("etcd.env", [
            (packaged, members), ("/var/lib/etcd/etcd1", folder / "data"), ("ETCD_NAME=etcd1", f"ETCD_NAME=etcd{number}"),
            ("http://etcd1.internal:2380", f"http://127.0.0.1:{peer}"), ("http://0.0.0.0:2380", f"http://127.0.0.1:{peer}"),
            ("http://etcd1.internal:2379", f"http://127.0.0.1:{client}"),
            ("http://0.0.0.0:2379", f"http://127.0.0.1:{client}"),
        ])
        settings = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
        if self.etcd_key == "etcd3:":
            del settings["ETCD_ENABLE_V2"]
        return Process([processes.find("etcd")], self.logs / f"etcd{number}.log", folder, settings)

    def patroni_changes(self, node):
        packaged = ",".join(f"etcd{number}.internal:2379" for number in range(1, PACKAGED_NODES + 1))
        changes = [
            ("db1", node.name),
            ("\netcd:\n", f"\n{self.etcd_key}\n"),
            (packaged, ",".join(f"127.0.0.1:{client}" for client, _ in self.etcd_ports)),
            ("0.0.0.0:8008", f"127.0.0.1:{node.rest}"), (f"{node.name}.internal:8008", f"127.0.0.1:{node.rest}"),
            ("0.0.0.0:5432", f"127.0.0.1:{node.port}"), (f"{node.name}.internal:5432", f"127.0.0.1:{node.port}"),
            ("/var/lib/postgresql/15/keeper", node.data), ("/usr/lib/postgresql/15/bin", self.binaries),
            ("/var/lib/postgresql/keeper.pgpass", node.folder / "pgpass"), ("/var/run/postgresql", node.folder),
            ("10.0.0.0/24", "127.0.0.1/32"),
            # A test must not reset its machine.
            ("mode: automatic", 'mode: "off"'),
        ]
        return changes + ([("synchronous_mode: true", "synchronous_mode: false")] if self.asynchronous else [])

    def make_haproxy(self):
        folder = self.folder / "haproxy"
        self.make_folder(folder)
        changes = [("    user haproxy\n    group haproxy\n", ""), ("bind 127.0.0.1:5000", f"bind 127.0.0.1:{self.haproxy_port}")]
        for number in range(1, PACKAGED_NODES + 1):
            line = f"    server db{number} db{number}.internal:5432 check port 8008\n"
            here = [f"    server {node.name} 127.0.0.1:{node.port} check port {node.rest}\n" for node in self.nodes
                    if node.name == f"db{number}"]
            changes.append((line, "".join(here)))
        self.write(folder / "haproxy.cfg", fill("haproxy.cfg", changes))
        return Process([processes.find("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")], self.logs / "haproxy.log",
                       folder)

    def make_pgbouncer(self):
        folder = self.folder / "pgbouncer"
        self.make_folder(folder)
        self.write(folder / "userlist.txt", fill("userlist.txt", []))
        self.write(folder / "pgbouncer.ini", fill("pgbouncer.ini", [
            ("port=5000", f"port={self.haproxy_port}"), ("listen_port = 6432", f"listen_port = {self.pgbouncer_port}"),
            ("/var/log/postgresql", folder), ("/var/run/postgresql", folder),
            ("/etc/pgbouncer/userlist.txt", folder / "userlist.txt"),
        ]))
        return Process([processes.find("pgbouncer"), "-q", str(folder / "pgbouncer.ini")], self.logs / "pgbouncer.log",
                       folder)

    def environments(self):
        """Returns the environment of tollkeeper for each way to reach the primary."""
        packaged = ",".join(f"db{number}.internal:5432" for number in range(1, PACKAGED_NODES + 1))
        text = fill("environment", [
            ("127.0.0.1:5000", f"127.0.0.1:{self.haproxy_port}"), ("127.0.0.1:6432", f"127.0.0.1:{self.pgbouncer_port}"),
            (packaged, ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)),
        ])
        variable = "TOLLKEEPER_DATABASE_URL"
        urls = re.findall(rf"^#?{variable}=(.*)$", text, re.MULTILINE)
        rest = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith(("#", variable)))
        return {way: {variable: url, **rest} for way, url in zip(("haproxy", "pgbouncer", "hosts"), urls, strict=True)}

    # Running the cluster

    def start(self):
        """Creates the cluster, and tollkeeper's database in it."""
        for etcd in self.etcds:
            etcd.start()
        # The first node creates the cluster, and the others copy it.
        self.nodes[0].patroni.start()
        until(lambda: self.nodes[0].ask("GET", "/primary")[0] == 200, 120, "the first node is the primary")
        for node in self.nodes[1:]:
            node.patroni.start()
        self.haproxy.start()
        self.pgbouncer.start()
        self.wait_until_healthy()
        self.leader().sql(fill("keeper.sql", []), "postgres")

    def members(self):
        """Returns the role and the state of each node, as reported by any node that responds."""
        for node in self.nodes:
            status, text = node.ask("GET", "/cluster")
            if status == 200:
                return {member["name"]: (member["role"], member["state"]) for member in json.loads(text)["members"]}
        return {}

    def leader(self):
        """Returns the node that holds the lock, or None."""
        return next((node for node in self.nodes if node.ask("GET", "/primary")[0] == 200), None)

    def standby(self):
        """Returns the node that has every commit, or any standby under asynchronous replication."""
        wanted = ("replica",) if self.asynchronous else ("sync_standby", "quorum_standby")
        names = [name for name, (role, _) in self.members().items() if role in wanted]
        return next((node for node in self.nodes if node.name in names), None)

    def is_healthy(self):
        members = self.members()
        if len(members) != len(self.nodes) or any(state not in ("running", "streaming") for _, state in members.values()):
            return False
        roles = [role for role, _ in members.values()]
        leader = self.leader()
        if roles.count("leader") != 1 or leader is None or self.standby() is None:
            return False
        try:
            streaming = leader.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "postgres")
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return int(streaming[0]) >= len(self.nodes) - 1

    def wait_until_healthy(self, seconds=120):
        until(self.is_healthy, seconds, "all nodes run, and a standby has every commit")

    def switch(self):
        """Moves the lock to the standby that has every commit."""
        leader, standby = self.leader(), self.standby()
        status, text = leader.ask("POST", "/switchover", {"leader": leader.name, "candidate": standby.name}, 60)
        if status not in (200, 202):
            raise RuntimeError(f"switchover: {status} {text}")

    def heal(self):
        """Starts all stopped processes, and resumes all paused ones."""
        for process in (*self.etcds, self.haproxy, self.pgbouncer, *(node.patroni for node in self.nodes)):
            process.send(signal.SIGCONT)
            if not process.is_running():
                process.start()
        for node in self.nodes:
            processes.signal_all(node.postgres(), signal.SIGCONT)

    def end(self):
        for process in (self.pgbouncer, self.haproxy):
            process.end()
        for node in self.nodes:
            node.end()
        for etcd in self.etcds:
            etcd.end()

    def keep_logs(self):
        """Copies the logs that aren't in the log folder."""
        log = self.folder / "pgbouncer" / "pgbouncer.log"
        if log.exists():
            shutil.copy(log, self.logs)
