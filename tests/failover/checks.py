"""Checks after each fault."""

import random
import threading

SAMPLE = 50
AT_ONCE = 20


def check(scene):
    """Records what is wrong. Returns the number of lost events, and the number of stored events that were never sent."""
    load, leader = scene.load, scene.cluster.leader()
    rows = leader.sql(f"SELECT event_id FROM usage_events WHERE source = '{load.source}'")
    present = set(rows)
    lost, strange = load.acknowledged.keys() - present, present - load.sent.keys()
    if lost:
        answered = [load.acknowledged[one][2] for one in lost]
        scene.fail(f"{len(lost)} acknowledged events are lost, answered within {max(answered) - min(answered):.1f} s")
    if strange or len(rows) != len(present):
        scene.fail(f"{len(strange)} stored events were never sent, {len(rows) - len(present)} are stored twice")
    for one in (load.wrong + scene.revocation.wrong)[:3]:
        scene.fail(f"a refusal that isn't 503: {one}")
    pools(scene)
    replicas(scene, sorted(load.acknowledged.keys() & present))
    code, said = scene.keepers[0].command("audit")
    if code:
        scene.fail(f"audit: {said.strip()[-500:]}")
    return len(lost), len(strange)


def pools(scene):
    """Sends concurrent bookings to every replica, to check that no connection pool is stuck."""
    for keeper in scene.keepers:
        statuses = []

        def book(keeper=keeper, statuses=statuses):
            event = scene.tenant.event("pools")
            statuses.append(keeper.ask("POST", "/service/v1/usage", {"events": [event]}).status)

        threads = [threading.Thread(target=book) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if statuses.count(200) != AT_ONCE:
            scene.fail(f"{keeper.name}: {AT_ONCE} concurrent bookings after the fault: {statuses}")


def replicas(scene, acknowledged):
    """Checks the events at every replica: a repeated event is a duplicate, and the report contains each event once."""
    [counted] = scene.cluster.leader().sql(
        f"SELECT count(*) FROM usage_events WHERE organization_id = '{scene.tenant.organization}'")
    path = f"/v1/organizations/{scene.tenant.organization}/billing/usage?group_by=month"
    for keeper in scene.keepers:
        sample = random.sample(acknowledged, min(SAMPLE, len(acknowledged)))
        if sample:
            answer = keeper.ask("POST", "/service/v1/usage", {"events": [scene.load.sent[one] for one in sample]})
            others = [result for result in answer.json.get("results", [None]) if not result or result["status"] != "duplicate"]
            if others:
                scene.fail(f"{keeper.name}: a repeated event isn't a duplicate: {answer.status} {others[0]}")
        reported = sum(row["chat"]["requests"] for row in scene.tenant.call(keeper, "GET", path).data()["usage"])
        if reported != int(counted):
            scene.fail(f"{keeper.name}: {counted} events are stored, and {reported} are in the report")
