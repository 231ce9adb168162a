"""The faults. Each is injected while the load runs. Afterwards, all stopped processes are started again."""

import signal
import time

import processes
from processes import until

# Seconds to wait for a takeover. It should take about 20 s, the TTL.
TAKEOVER_SECONDS = 60
# Seconds for which an old primary keeps running after the bookings were checked.
ORPHAN_SECONDS = 5


def new_leader(scene, old):
    """Waits until another node is the primary."""
    others = [node for node in scene.cluster.nodes if node is not old]
    return until(lambda: next((node for node in others if node.ask("GET", "/primary")[0] == 200), None),
                 TAKEOVER_SECONDS, "another node takes over")


def orphaned(scene, old):
    """Checks that every way writes to the new primary while the old one is still running."""
    new_leader(scene, old)
    promoted, bound = time.monotonic(), scene.options.books_seconds
    time.sleep(bound)
    for way in sorted(scene.ways() - scene.load.wrote_since(promoted)):
        scene.fail(f"{way}: no booking within {bound:.0f} s after another node took over")
    # Deleted keys are checked while the old primary is running.
    time.sleep(ORPHAN_SECONDS)


def none(scene):
    """Nothing happens."""
    time.sleep(10)


def switchover(scene):
    """Moves the lock to the standby, like an operator before maintenance."""
    scene.cluster.switch()
    scene.cluster.wait_until_healthy()


def postgres_killed(scene):
    """kill -9 of the leader's PostgreSQL. Patroni restarts it."""
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
    """kill -9 of the leader's Patroni alone. Its PostgreSQL keeps running, and still accepts writes."""
    leader = scene.cluster.leader()
    leader.patroni.end()
    orphaned(scene, leader)


def patroni_paused(scene):
    """SIGSTOP of the leader's Patroni alone, which resumes after another node has taken over."""
    leader = scene.cluster.leader()
    leader.patroni.send(signal.SIGSTOP)
    orphaned(scene, leader)


def leader_paused(scene):
    """SIGSTOP of the leader's Patroni and PostgreSQL, which resume after another node has taken over."""
    leader = scene.cluster.leader()
    leader.pause()
    orphaned(scene, leader)
    leader.resume()
    time.sleep(5)


def etcd_killed(scene):
    """All etcd servers are down for 40 s, longer than the TTL."""
    for etcd in scene.cluster.etcds:
        etcd.end()
    time.sleep(40)


def standby_killed(scene):
    """kill -9 of the machine of the standby that has every commit."""
    scene.cluster.standby().kill()
    time.sleep(15)
    scene.wait_for_writes()


def standby_paused(scene):
    """The standby that has every commit doesn't respond."""
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
    """HAProxy doesn't respond for 25 s."""
    scene.cluster.haproxy.send(signal.SIGSTOP)
    time.sleep(25)


def haproxy_killed(scene):
    """HAProxy is down for 5 s."""
    scene.cluster.haproxy.end()
    time.sleep(5)


def pgbouncer_killed(scene):
    """PgBouncer is down for 5 s."""
    scene.cluster.pgbouncer.end()
    time.sleep(5)


def keepers_and_leader_killed(scene):
    """kill -9 of one replica per way and of the leader."""
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
    """The same, and then the leader fails, with commits that no standby has."""
    cancel_waits(scene, dies=True)


def cancel_waits(scene, dies):
    leader = scene.cluster.leader()
    senders = leader.walsenders()
    processes.signal_all(senders, signal.SIGSTOP)
    try:
        # Earlier statements may still be confirmed.
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
    scene.note(f"{cancelled} waits cancelled, {len(answered)} events were acknowledged that no standby had")
    if answered:
        scene.fail(f"{len(answered)} events were acknowledged while no standby confirmed any")
    if dies:
        new_leader(scene, leader)
    scene.wait_for_writes()


SMALL = (switchover, leader_killed, patroni_killed, waits_cancelled)
# The most important faults come first, for runs with only a few faults.
WHOLE = (
    none, switchover, leader_killed, patroni_killed, patroni_paused, leader_paused, waits_cancelled_leader_killed,
    postgres_killed, etcd_killed, haproxy_paused, standby_paused, standby_killed, standbys_killed, haproxy_killed,
    pgbouncer_killed, keepers_and_leader_killed, connections_ended, waits_cancelled,
)
FAULTS = {fault.__name__: fault for fault in (*WHOLE, *SMALL)}
