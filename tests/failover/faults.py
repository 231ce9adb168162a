"""The faults. Each is played while the load runs; what it has stopped is started again afterwards."""

import signal
import time

import processes
from processes import until

# Seconds to wait for a takeover, which should take the ttl of 20 s.
TAKEOVER_SECONDS = 60
# For which an old primary lives on after the bookings were looked at.
ORPHAN_SECONDS = 5


def new_leader(scene, old):
    """Waits until another node is the primary."""
    others = [node for node in scene.cluster.nodes if node is not old]
    return until(lambda: next((node for node in others if node.ask("GET", "/primary")[0] == 200), None),
                 TAKEOVER_SECONDS, "another node takes over")


def orphaned(scene, old):
    """An old primary that lives beside the new one: the new one must be written by every way."""
    new_leader(scene, old)
    promoted, bound = time.monotonic(), scene.options.books_seconds
    time.sleep(bound)
    for way in sorted(scene.ways() - scene.load.wrote_since(promoted)):
        scene.fail(f"{way}: nothing was booked for {bound:.0f} s after another node took over")
    # Deleted keys are asked for as long as it lives.
    time.sleep(ORPHAN_SECONDS)


def none(scene):
    """Nothing happens."""
    time.sleep(10)


def switchover(scene):
    """The lock is moved to the standby, as before maintenance."""
    scene.cluster.switch()
    scene.cluster.wait_until_healthy()


def postgres_killed(scene):
    """kill -9 of the leader's PostgreSQL. Patroni starts it again."""
    leader = scene.cluster.leader()
    leader.kill_postgres()
    time.sleep(3)
    scene.wait_for_writes()


def leader_killed(scene):
    """kill -9 of the leader's Patroni and PostgreSQL."""
    leader = scene.cluster.leader()
    leader.kill()
    new_leader(scene, leader)
    scene.wait_for_writes()


def patroni_killed(scene):
    """kill -9 of the leader's Patroni alone. Its PostgreSQL goes on, and still accepts writes."""
    leader = scene.cluster.leader()
    leader.patroni.end()
    orphaned(scene, leader)


def patroni_paused(scene):
    """SIGSTOP of the leader's Patroni alone, which wakes up after another node has taken over."""
    leader = scene.cluster.leader()
    leader.patroni.send(signal.SIGSTOP)
    orphaned(scene, leader)


def leader_paused(scene):
    """SIGSTOP of the leader's Patroni and PostgreSQL, which wake up after another node has taken over."""
    leader = scene.cluster.leader()
    leader.pause()
    orphaned(scene, leader)
    leader.resume()
    time.sleep(5)


def etcd_killed(scene):
    """All of etcd is gone for 40 s, longer than the ttl."""
    for etcd in scene.cluster.etcds:
        etcd.end()
    time.sleep(40)


def standby_killed(scene):
    """kill -9 of the machine of the standby that has every commit."""
    scene.cluster.standby().kill()
    time.sleep(15)
    scene.wait_for_writes()


def standby_paused(scene):
    """The standby that has every commit is silent."""
    standby = scene.cluster.standby()
    standby.pause()
    time.sleep(25)
    standby.resume()


def standbys_killed(scene):
    """kill -9 of all standbys."""
    leader = scene.cluster.leader()
    for node in scene.cluster.nodes:
        if node is not leader:
            node.kill()
    time.sleep(15)
    scene.wait_for_writes()


def haproxy_paused(scene):
    """HAProxy is silent for 25 s."""
    scene.cluster.haproxy.send(signal.SIGSTOP)
    time.sleep(25)


def haproxy_killed(scene):
    """HAProxy is gone for 5 s."""
    scene.cluster.haproxy.end()
    time.sleep(5)


def pgbouncer_killed(scene):
    """PgBouncer is gone for 5 s."""
    scene.cluster.pgbouncer.end()
    time.sleep(5)


def keepers_and_leader_killed(scene):
    """kill -9 of a replica of each way and of the leader."""
    leader = scene.cluster.leader()
    for way in scene.ways():
        next(keeper for keeper in scene.keepers if keeper.way == way).process.end()
    leader.kill()
    new_leader(scene, leader)
    scene.start_keepers()
    scene.wait_for_writes()


def connections_ended(scene):
    """pg_terminate_backend of all connections, five times."""
    for _ in range(5):
        scene.cluster.leader().sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'keeper'",
                                   "postgres")
        time.sleep(2)


def waits_cancelled(scene):
    """No standby confirms commits, and an operator cancels those that wait. None of them may be acknowledged."""
    cancel_waits(scene, dies=False)


def waits_cancelled_leader_killed(scene):
    """The same, and then the leader dies with what no standby has."""
    cancel_waits(scene, dies=True)


def cancel_waits(scene, dies):
    leader = scene.cluster.leader()
    senders = leader.walsenders()
    processes.signal_all(senders, signal.SIGSTOP)
    try:
        # Statements from before may still be confirmed.
        time.sleep(0.5)
        begin, cancelled = time.monotonic(), 0
        while time.monotonic() < begin + 4:
            cancelled += int(leader.sql("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity"
                                        " WHERE wait_event = 'SyncRep'", "postgres")[0])
            time.sleep(0.3)
        end = time.monotonic()
        if dies:
            leader.kill()
    finally:
        processes.signal_all(senders, signal.SIGCONT)
    if not cancelled:
        scene.fail("no commit waited for the standby")
    answered = scene.load.acknowledged_between(begin, end)
    scene.note(f"{cancelled} waits cancelled, {len(answered)} events acknowledged that no standby had")
    if answered:
        scene.fail(f"{len(answered)} events were acknowledged while no standby confirmed any")
    if dies:
        new_leader(scene, leader)
    scene.wait_for_writes()


SMALL = (switchover, leader_killed, patroni_killed, waits_cancelled)
# The most important faults first, for runs of a few.
WHOLE = (
    none, switchover, leader_killed, patroni_killed, patroni_paused, leader_paused, waits_cancelled_leader_killed,
    postgres_killed, etcd_killed, haproxy_paused, standby_paused, standby_killed, standbys_killed, haproxy_killed,
    pgbouncer_killed, keepers_and_leader_killed, connections_ended, waits_cancelled,
)
FAULTS = {fault.__name__: fault for fault in (*WHOLE, *SMALL)}
