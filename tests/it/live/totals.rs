//! Total usage of keys and projects: closed months are cached, and the totals always equal the sum of the
//! daily rows.

use std::sync::atomic::{AtomicI64, Ordering};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::closing;
use tollkeeper::clock::{DAY_MS, Time};
use tollkeeper::db::sql;
use tollkeeper::trail::Trail;

use crate::support::billed::fresh_token;
use crate::support::books::change;
use crate::support::twin::Twin;
use crate::support::world::{Place, TestUser, World, on_each_database_with};

/// Two servers, and one key of a project.
struct Scene<'w> {
    world: &'w World,
    twins: [Twin; 2],
    ada: TestUser,
    place: Place,
    key: (String, String),
}

impl<'w> Scene<'w> {
    async fn new(world: &'w World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let key = world.old_key(&ada, &place, &json!({"name": "one"})).await;
        Self { world, twins: Twin::both(world).await, ada, place, key }
    }

    fn paths(&self) -> [String; 2] {
        let project = self.place.project_path();
        [format!("{project}/api-keys/{}", self.key.0), project]
    }

    /// Returns requests and tokens of the key and of the project, as this server reports them.
    async fn read(&self, twin: &Twin) -> [(i64, i64); 2] {
        let [key, project] = self.paths();
        let key = twin.get(&key).bearer(&self.key.1).data().await;
        let project = twin.get(&project).bearer(&self.key.1).data().await;
        let at = |data: &Value, pointer: &str| data.pointer(pointer).unwrap().as_i64().unwrap();
        [
            (at(&key, "/usage/total_requests"), at(&key, "/usage/total_tokens")),
            (at(&project, "/usage/requests"), at(&project, "/usage/tokens")),
        ]
    }

    /// Returns the same sums from all daily rows.
    async fn read_rows(&self) -> [(i64, i64); 2] {
        let mut sums = Vec::new();
        for (column, id) in [("api_key_id", &self.key.0), ("project_id", &self.place.project)] {
            let text = format!(
                "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT),
                        CAST(COALESCE(SUM(prompt_tokens + completion_tokens), 0) AS BIGINT)
                 FROM usage_daily WHERE {column} = $1"
            );
            let mut tx = self.world.app.db.read().await.unwrap();
            sums.push(sql(text).bind(id.as_str()).one(&mut tx).await.unwrap());
        }
        sums.try_into().unwrap()
    }

    /// Asserts that both servers report the sums of all rows, also when asked again.
    async fn check(&self, due: (i64, i64)) {
        assert_eq!(self.read_rows().await, [due; 2]);
        for twin in [&self.twins[0], &self.twins[1], &self.twins[0], &self.twins[1]] {
            assert_eq!(self.read(twin).await, [due; 2], "{}", self.world.backend);
        }
    }

    fn event(&self, id: &str, day: &str, prompt: i64, completion: i64) -> Value {
        json!({"id": id, "source": "s", "time": format!("{day}T10:00:00Z"), "api_key_id": self.key.0, "model": "svc-1",
            "kind": "chat", "prompt_tokens": prompt, "completion_tokens": completion})
    }

    async fn report(&self, event: Value) {
        let answer = self.world.ask("/service/v1/usage", &json!({"events": [event]})).send().await.json();
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    }

    /// Runs the jobs at this time on the second server.
    async fn close(&self, now: &str) -> usize {
        let now = Time::parse(now).unwrap();
        self.world.clock.advance_ms(now.unix_ms() - self.world.clock.now().unix_ms());
        let closed =
            closing::close_due(&self.twins[1].app.billing, now, &Trail::system(), None).await.unwrap();
        assert!(closed.failed.is_empty(), "{:?}", closed.failed);
        closed.closed.len()
    }

    /// Inserts daily rows directly: days before 2026 that are billed this many months from the open month.
    async fn rows(&self, count: i64, month_from_open: i64) {
        let text = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
             INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                      requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
             SELECT organization_id, '{}', '{}', 'm', 0, 'chat', i, open_month + {month_from_open}, 2, 3, 4, 0, 0
             FROM n, wallets WHERE organization_id = '{}'",
            self.place.project, self.key.0, self.place.organization
        );
        change(self.world, &text).await;
    }

    /// Returns the number of statements of the first server for each of the two: the gate's, for a project
    /// its own, and one sum.
    async fn statements(&self) -> [u64; 2] {
        let mut counts = Vec::new();
        for path in self.paths() {
            // The caller is cached by then.
            self.twins[0].get("/v1/auth/me").bearer(&self.ada.access_token).data().await;
            let before = self.twins[0].app.db.statement_count();
            self.twins[0].get(&path).bearer(&self.ada.access_token).data().await;
            counts.push(self.twins[0].app.db.statement_count() - before);
        }
        counts.try_into().unwrap()
    }
}

fn on_each(test: impl AsyncFn(World)) {
    on_each_database_with(&[("TOLLKEEPER_LIMITS__ENABLED", "false")], test);
}

#[test]
fn totals_include_late_events_and_corrections_across_months() {
    on_each(async |world| {
        let scene = Scene::new(&world).await;
        scene.check((0, 0)).await;
        scene.report(scene.event("a", "2026-02-27", 100, 10)).await;
        scene.report(scene.event("b", "2026-03-09", 200, 20)).await;
        scene.check((2, 330)).await;
        // Both have cached March as open; the second one closes it.
        assert_eq!(scene.close("2026-04-02T01:00:00Z").await, 1);
        scene.check((2, 330)).await;
        let late = scene.event("c", "2026-03-08", 400, 40);
        scene.report(late).await;
        scene.check((3, 770)).await;
        let mut correction = scene.event("d", "2026-04-01", -50, -20);
        correction["corrects"] = json!("b");
        scene.report(correction).await;
        scene.check((3, 700)).await;
        // Months end without a call to the first server, some of them with usage.
        assert_eq!(scene.close("2026-05-03T01:00:00Z").await, 1);
        scene.report(scene.event("e", "2026-05-02", 1, 0)).await;
        scene.report(scene.event("f", "2026-04-20", 2, 0)).await;
        assert_eq!(scene.close("2026-08-02T01:00:00Z").await, 3);
        scene.report(scene.event("g", "2026-08-01", 4, 0)).await;
        scene.report(scene.event("h", "2026-03-31", 8, 0)).await;
        scene.check((7, 715)).await;
        // A project's sum differs from its keys' sums.
        let other =
            world.old_key(&scene.ada_with_new_session().await, &scene.place, &json!({"name": "two"})).await;
        let mut event = scene.event("i", "2026-08-01", 1_000, 0);
        event["api_key_id"] = json!(other.0);
        scene.report(event).await;
        for twin in &scene.twins {
            assert_eq!(scene.read(twin).await, [(7, 715), (8, 1_715)]);
        }
    });
}

impl Scene<'_> {
    /// Returns Ada with a new session after hers has ended.
    async fn ada_with_new_session(&self) -> TestUser {
        TestUser { access_token: fresh_token(self.world, &self.ada).await, ..self.ada.clone() }
    }
}

#[test]
fn closed_months_are_read_once() {
    on_each(async |world| {
        let scene = Scene::new(&world).await;
        scene.rows(900, -1).await;
        scene.rows(10, 0).await;
        let due = (910 * 2, 910 * 7);
        scene.check(due).await;
        assert_eq!(scene.statements().await, [2, 3]);
        // Changes closed rows, which never happens: reading them again would show it.
        change(&world, "UPDATE usage_daily SET requests = requests + 1000000 WHERE month < (SELECT open_month FROM wallets)").await;
        for twin in &scene.twins {
            assert_eq!(scene.read(twin).await, [due; 2], "{}", world.backend);
        }
        // Open months are read again.
        change(
            &world,
            "UPDATE usage_daily SET requests = requests + 1 WHERE month = (SELECT open_month FROM wallets)",
        )
        .await;
        let due = (due.0 + 10, due.1);
        for twin in &scene.twins {
            assert_eq!(scene.read(twin).await, [due; 2], "{}", world.backend);
        }
        // If the database may have changed, everything is summed again.
        scene.twins[0].app.feed.epochs.invalidate_all();
        assert_eq!(scene.read(&scene.twins[0]).await, [(due.0 + 900_000_000, due.1); 2]);
        assert_eq!(scene.read(&scene.twins[1]).await, [due; 2]);
    });
}

#[test]
fn totals_of_many_rows_are_cached_too() {
    on_each(async |world| {
        let scene = Scene::new(&world).await;
        let mut rows = 0;
        for to in [0, 1, 999, 1_000, 1_001, 2_500] {
            if to > rows {
                let text = format!("DELETE FROM usage_daily WHERE project_id = '{}'", scene.place.project);
                change(&world, &text).await;
                scene.rows(to, 0).await;
                rows = to;
            }
            assert_eq!(scene.statements().await, [2, 3], "{to} {}", world.backend);
            scene.check((2 * to, 7 * to)).await;
        }
        // The month has ended: the first read sums it once more, and later ones don't.
        change(&world, "UPDATE wallets SET open_month = open_month + 1").await;
        assert_eq!(scene.statements().await, [2, 3]);
        assert_eq!(scene.statements().await, [2, 3]);
        scene.check((5_000, 17_500)).await;
        scene.rows(3, 0).await;
        scene.check((5_006, 17_521)).await;
        assert_eq!(scene.statements().await, [2, 3]);
    });
}

/// As after the promotion of a standby that had not received the end of the month and the latest rows.
#[test]
fn reopened_month_is_summed_again() {
    on_each(async |world| {
        let scene = Scene::new(&world).await;
        scene.rows(10, -1).await;
        scene.rows(10, 0).await;
        change(&world, "UPDATE wallets SET open_month = open_month + 1").await;
        scene.check((40, 140)).await;
        change(&world, "UPDATE wallets SET open_month = open_month - 1").await;
        change(&world, "DELETE FROM usage_daily WHERE day > 7 AND month = (SELECT open_month FROM wallets)")
            .await;
        scene.check((34, 119)).await;
        change(&world, "DELETE FROM usage_daily WHERE day = 7 AND month = (SELECT open_month FROM wallets)")
            .await;
        scene.check((32, 112)).await;
    });
}

/// Readers never see less than an earlier answer nor more than was sent, while months end.
#[test]
fn totals_are_consistent_while_months_end() {
    on_each(async |world| {
        let scene = Scene::new(&world).await;
        let (sent, answered, closed) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
        let is_over = || closed.load(Ordering::SeqCst) == 12;
        let reporter = async |name: &str| {
            let mut number = 0;
            while !is_over() {
                number += 1;
                // Sometimes late, sometimes on the same day.
                let back = if number % 3 == 0 { 40 } else { 0 };
                let time = world.clock.now().plus_ms(-back * DAY_MS).to_string();
                let mut event = scene.event(&format!("{name}{number}"), "2026-01-01", 3, 4);
                event["time"] = json!(time);
                sent.fetch_add(1, Ordering::SeqCst);
                scene.report(event).await;
                answered.fetch_add(1, Ordering::SeqCst);
            }
        };
        let reader = async |twin: &Twin| {
            while !is_over() {
                let least = answered.load(Ordering::SeqCst);
                let [key, project] = scene.read(twin).await;
                let most = sent.load(Ordering::SeqCst);
                for (requests, tokens) in [key, project] {
                    assert!((least..=most).contains(&requests), "{least} {requests} {most}");
                    assert_eq!(tokens, requests * 7);
                }
            }
        };
        let closer = async {
            while !is_over() {
                world.clock.advance_ms(31 * DAY_MS);
                let now = world.clock.now();
                let done = closing::close_due(&scene.twins[1].app.billing, now, &Trail::system(), None)
                    .await
                    .unwrap();
                assert!(done.failed.is_empty(), "{:?}", done.failed);
                let before = answered.load(Ordering::SeqCst);
                while answered.load(Ordering::SeqCst) < before + 8 {
                    tokio::task::yield_now().await;
                }
                closed.fetch_add(1, Ordering::SeqCst);
            }
        };
        let [first, second] = &scene.twins;
        tokio::join!(reporter("a"), reporter("b"), reporter("c"), reader(first), reader(second), closer);
        let due = sent.load(Ordering::SeqCst);
        scene.check((due, due * 7)).await;
    });
}

/// A caller that may not see a project or a key is refused, and nothing is cached for them.
#[test]
fn refused_callers_fill_no_cache() {
    on_each(async |world| {
        let scene = Scene::new(&world).await;
        scene.rows(5, 0).await;
        let (eve, theirs) = (world.user("eve").await, world.user("bob").await);
        let elsewhere = world.place(&theirs, "Elsewhere").await;
        world
            .join_organization(&scene.place, &eve, tollkeeper::tenants::roles::OrganizationRole::Member)
            .await;
        let other_key = format!("{}/api-keys/{}", elsewhere.project_path(), scene.key.0);
        let [key, project] = scene.paths();
        for (path, user, status) in [
            (&key, &eve, 403),
            (&project, &eve, 403),
            (&key, &theirs, 403),
            (&project, &theirs, 403),
            (&other_key, &theirs, 404),
        ] {
            let answer = world.call(Method::GET, path).bearer(&user.access_token).send().await;
            assert_eq!(answer.status, status, "{path} {}", answer.text);
        }
        assert!(world.app.billing.usage_totals.is_empty());
        scene.check((10, 35)).await;
        assert_eq!(world.app.billing.usage_totals.len(), 2);
    });
}
