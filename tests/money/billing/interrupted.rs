//! Calls whose gateway was interrupted (docs/contract/gateway.md#what-a-killed-server-costs). They are
//! charged by the progress that was stored last, and the rest is charged if the gateway is still running.

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::billing::books::{self, Lifetime, Reserve};
use tollkeeper::billing::calls::{Charge, CostedRoute, charge};
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::billing::reservations::{Progress, Reservation, extend_call, release};
use tollkeeper::billing::store::reservations::NewReservation;
use tollkeeper::billing::usage::{Caller, Event, GATEWAY_SOURCE, Outcome, Usage};
use tollkeeper::billing::{audit, reservations};
use tollkeeper::call_log::entries::{Course, Ended, Operation};
use tollkeeper::catalog::{ComponentPrices, EventParts, Kind, ServiceTier};
use tollkeeper::clock::HOUR_MS;
use tollkeeper::db::sql;
use tollkeeper::error::Code;
use tollkeeper::ids::{ApiKeyId, CallerId, ModelCallId, OrganizationId, ProjectId, ReservationId, UserId};
use tollkeeper::money::{Nano, Pico};

use support::books::{assert_books, number, wallet};
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

/// Returns the course of a chat of which nothing else is known.
fn course() -> Course {
    Course::reported(Operation::Chat, Ended::Completed)
}

/// Costs 0.000001 per prompt token, 0.0000001 per cached one, and 0.000003 per completion token.
const CATALOG: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/half_price.toml");
const MODEL: &str = "chat-cached";
/// The amount that each call in these tests reserves, in nano.
const HELD_NANO: i64 = 5_000_000;

struct Scene {
    world: World,
    model: &'static str,
    ada: TestUser,
    place: Place,
    key_id: String,
}

/// A call in progress.
struct OpenCall {
    id: ModelCallId,
    reservation: Reservation,
    caller: Caller,
}

/// Returns the route, which costs 0.000001 per prompt token and 0.000002 per completion token.
fn route() -> CostedRoute {
    let costs = ComponentPrices {
        prompt: Pico::from_units(1_000_000),
        completion: Pico::from_units(2_000_000),
        ..ComponentPrices::default()
    };
    CostedRoute { upstream: "engine".into(), costs: costs.into() }
}

fn run_on(database: Database, test: impl AsyncFn(&Scene)) {
    run_with(database, (CATALOG, MODEL), test);
}

/// Runs a test with a model of another catalog.
fn run_with(database: Database, (catalog, model): ((&str, &str), &'static str), test: impl AsyncFn(&Scene)) {
    database.run(&[catalog], async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (key_id, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
        let scene = Scene { world, model, ada, place, key_id };
        test(&scene).await;
        assert_books(&scene.world).await;
        let report = audit::check(&scene.world.app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.drifts);
    });
}

/// Returns a progress with these prompt tokens, cached tokens and completion tokens.
fn progress(prompt: i64, cached: Option<i64>, completion: i64) -> Option<Progress> {
    Some(Progress {
        prompt_tokens: prompt,
        cached_prompt_tokens: cached,
        completion_tokens: completion,
        is_estimated: false,
    })
}

impl Scene {
    fn app(&self) -> &App {
        &self.world.app
    }

    async fn open(&self) -> OpenCall {
        self.open_by(Caller::ApiKey(ApiKeyId::parse(&self.key_id).unwrap())).await
    }

    async fn open_by(&self, caller: Caller) -> OpenCall {
        self.world.clock.advance_ms(1);
        let now = self.world.clock.now();
        let id = ModelCallId::new(now, &self.app().random);
        let new = NewReservation {
            id: ReservationId::new(now, &self.app().random),
            organization_id: OrganizationId::parse(&self.place.organization).unwrap(),
            project_id: ProjectId::parse(&self.place.project).unwrap(),
            caller: caller.id(),
            model: self.model.to_owned(),
            amount: Nano::from_units(HELD_NANO.into()),
            request_id: Some(id.to_string()),
            began_at: now,
        };
        let operation = Reserve { new, max_concurrent: 100, lifetime: Lifetime::Gateway };
        let reserved = books::submit(&self.app().billing, operation).await.unwrap().unwrap();
        OpenCall { id, reservation: reserved.reservation, caller }
    }

    async fn extend(&self, call: &OpenCall, progress: Option<Progress>) -> Result<Reservation, Code> {
        let extended = extend_call(&self.app().billing, call.reservation.id, progress).await;
        extended.map_err(|error| error.code)
    }

    /// Charges a call as its gateway does when the call ends.
    async fn charge(&self, call: &OpenCall, prompt: i64, cached: Option<i64>, completion: i64) -> Charge {
        self.charge_at(call, (prompt, cached, completion), ServiceTier::default()).await
    }

    /// Does the same as `charge`, with the service tier of the answer.
    async fn charge_at(
        &self,
        call: &OpenCall,
        (prompt, cached, completion): (i64, Option<i64>, i64),
        service_tier: ServiceTier,
    ) -> Charge {
        let usage = Usage {
            caller: call.caller.clone(),
            model: self.model.into(),
            kind: Kind::Chat,
            prompt_tokens: prompt,
            completion_tokens: completion,
            cached_prompt_tokens: cached,
            parts: EventParts::default(),
            service_tier,
            is_estimated: false,
            rest: None,
            reservation_id: Some(call.reservation.id),
            corrects: None,
        };
        let event = Event {
            id: call.id.to_string().into(),
            source: GATEWAY_SOURCE.into(),
            time: call.id.created_at(),
            usage,
        };
        charge(&self.app().billing, event, Some(&route()), course()).await.unwrap()
    }

    async fn sweep(&self) -> u64 {
        expire_due(&self.app().billing).await.unwrap()
    }

    /// Returns the posted and the reserved amount, in nano.
    async fn wallet(&self) -> (i64, i64) {
        wallet(&self.world, &self.place.organization).await
    }

    /// Returns the events of a call: the suffix of the id, the prompt tokens and the completion tokens.
    async fn events(&self, call: &OpenCall) -> Vec<(String, i64, i64)> {
        let mut tx = self.app().db.read().await.unwrap();
        let rows: Vec<(String, i64, i64)> = sql(
            "SELECT event_id, prompt_tokens, completion_tokens FROM usage_events WHERE source = 'gateway'
                 ORDER BY event_id",
        )
        .all(&mut tx)
        .await
        .unwrap();
        let id = call.id.to_string();
        let of_call = rows.into_iter().filter_map(|(event_id, prompt, completion)| {
            Some((event_id.strip_prefix(&id)?.to_owned(), prompt, completion))
        });
        of_call.collect()
    }
}

/// Returns expected rows of events.
fn rows(rows: &[(&str, i64, i64)]) -> Vec<(String, i64, i64)> {
    rows.iter().map(|(id, prompt, completion)| ((*id).to_owned(), *prompt, *completion)).collect()
}

#[on_each_database]
fn last_progress_is_charged_when_the_reservation_expires(database: Database) {
    run_on(database, async |scene| {
        let (interrupted, silent) = (scene.open().await, scene.open().await);
        let reported = scene.world.clock.now();
        let end = |reservation: Reservation| reservation.expires_at.unix_ms() - reported.unix_ms();
        assert_eq!((end(interrupted.reservation), end(silent.reservation)), (59_999, 60_000));
        scene.world.clock.advance_ms(15_000);
        assert_eq!(scene.extend(&interrupted, None).await.map(end), Ok(75_000));
        assert_eq!(scene.extend(&interrupted, progress(1_000, Some(600), 20)).await.map(end), Ok(75_000));
        scene.world.clock.advance_ms(10_000);
        assert_eq!(scene.extend(&interrupted, progress(1_000, Some(600), 45)).await.map(end), Ok(85_000));
        // An extension without progress keeps the last progress.
        assert_eq!(scene.extend(&interrupted, None).await.map(end), Ok(85_000));
        assert_eq!((scene.wallet().await, scene.sweep().await), ((0, 2 * HELD_NANO), 0));
        // The call without progress costs nothing.
        scene.world.clock.advance_ms(35_000);
        assert_eq!((scene.sweep().await, scene.wallet().await), (1, (0, HELD_NANO)));
        assert_eq!(scene.events(&silent).await, []);
        scene.world.clock.advance_ms(24_999);
        assert_eq!((scene.sweep().await, scene.wallet().await), (0, (0, HELD_NANO)));
        scene.world.clock.advance_ms(1);
        // 400 x 1,000 + 600 x 100 + 45 x 3,000 nano.
        assert_eq!((scene.sweep().await, scene.wallet().await), (1, (-595_000, 0)));
        assert_eq!(scene.events(&interrupted).await, rows(&[("", 1_000, 45)]));
        assert_eq!((scene.sweep().await, scene.wallet().await), (0, (-595_000, 0)));
        assert_eq!(scene.extend(&interrupted, None).await, Err(Code::ReservationNotFound));
        assert_eq!(scene.app().billing.metrics.interrupted_calls.get(), 1);
        let kept = "SELECT COUNT(*) FROM usage_events WHERE cached_prompt_tokens = 600 AND estimated = 0";
        assert_eq!(number(&scene.world, kept).await, 1);
    });
}

#[on_each_database]
fn estimated_progress_of_a_person_is_an_estimated_event(database: Database) {
    run_on(database, async |scene| {
        let person = Caller::user(ProjectId::parse(&scene.place.project).unwrap(), scene.ada.id);
        let call = scene.open_by(person).await;
        let estimated = progress(10, None, 4).map(|progress| Progress { is_estimated: true, ..progress });
        scene.extend(&call, estimated).await.unwrap();
        scene.world.clock.advance_ms(60_000);
        // 10 x 1,000 + 4 x 3,000 nano.
        assert_eq!((scene.sweep().await, scene.wallet().await), (1, (-22_000, 0)));
        let text = format!(
            "SELECT COUNT(*) FROM usage_events WHERE estimated = 1 AND cached_prompt_tokens IS NULL AND api_key_id = '{}'",
            UserId::to_string(&scene.ada.id)
        );
        assert_eq!(number(&scene.world, &text).await, 1);
        let user = CallerId::User(scene.ada.id);
        assert_eq!(call.caller.id(), user);
    });
}

#[on_each_database]
fn three_replicas_charge_an_interrupted_call_once(database: Database) {
    run_on(database, async |scene| {
        let mut replicas = vec![scene.app().clone()];
        for _ in 0..2 {
            let other = App::new(scene.app().config.clone(), scene.world.clock.clone()).unwrap();
            other.boot().await.unwrap();
            replicas.push(other);
        }
        for round in 1..=3 {
            for number in 0..20 {
                let call = scene.open().await;
                scene.extend(&call, progress(100, None, number)).await.unwrap();
            }
            scene.world.clock.advance_ms(60_000);
            let swept = join_all(replicas.iter().map(|app| expire_due(&app.billing))).await;
            let ended: u64 = swept.into_iter().map(Result::unwrap).sum();
            // 20 x 100 x 1,000, and 190 x 3,000 nano.
            assert_eq!((ended, scene.wallet().await), (20, (-2_570_000 * round, 0)));
        }
        assert_eq!(number(&scene.world, "SELECT COUNT(*) FROM usage_events").await, 60);
    });
}

#[on_each_database]
fn gateway_that_comes_back_charges_the_rest(database: Database) {
    run_on(database, async |scene| {
        // The tokens of the progress and of the whole call, the resulting events, and their price in nano.
        type Tokens = (i64, Option<i64>, i64);
        type Case = (Tokens, Tokens, &'static [(&'static str, i64, i64)], i64);
        let cases: [Case; 6] = [
            // 9 x 1,000 + 50 x 3,000
            ((9, None, 20), (9, None, 50), &[("", 9, 20), (".2", 0, 30)], 159_000),
            ((9, None, 50), (9, None, 50), &[("", 9, 50)], 159_000),
            // 9 x 1,000 + 15 x 3,000. The stored estimate was too high.
            ((12, None, 20), (9, None, 15), &[("", 12, 20), (".3", -3, -5)], 54_000),
            // 9 x 1,000 + 25 x 3,000
            ((12, None, 20), (9, None, 25), &[("", 12, 20), (".2", 0, 5), (".3", -3, 0)], 84_000),
            // 400 x 1,000 + 600 x 100 + 50 x 3,000. Only the final usage had the number of cached tokens.
            (
                (1_000, None, 20),
                (1_000, Some(600), 50),
                &[("", 1_000, 20), (".2", 600, 30), (".3", -600, 0)],
                610_000,
            ),
            // The same usage, without a difference.
            ((1_000, Some(600), 50), (1_000, Some(600), 50), &[("", 1_000, 50)], 610_000),
        ];
        let mut spent = 0;
        for ((prompt, cached, completion), (all_prompt, all_cached, all_completion), due, nano) in cases {
            let call = scene.open().await;
            scene.extend(&call, progress(prompt, cached, completion)).await.unwrap();
            scene.world.clock.advance_ms(60_000);
            assert_eq!(scene.sweep().await, 1);
            spent += nano;
            for _ in 0..3 {
                // The charge is repeated, as after a lost response.
                let charged = scene.charge(&call, all_prompt, all_cached, all_completion).await;
                assert!(!matches!(charged, Charge::Event(Outcome::Conflict)), "{charged:?}");
                assert_eq!(scene.events(&call).await, rows(due));
                assert_eq!(scene.wallet().await, (-spent, 0), "{due:?}");
            }
        }
    });
}

/// Returns the number of calls with costs, their prompt and completion tokens, list price and cost in nano.
async fn costs(scene: &Scene) -> Vec<[i64; 5]> {
    let text = "SELECT requests || ' ' || prompt_tokens || ' ' || completion_tokens || ' ' || (amount_pico / 1000) || ' ' ||
                    (cost_pico / 1000)
                FROM daily_costs WHERE upstream = 'engine' AND amount_whole = 0 AND cost_whole = 0";
    let rows: Vec<(String,)> = sql(text).all(&mut scene.app().db.read().await.unwrap()).await.unwrap();
    let numbers =
        |(row,): &(String,)| row.split(' ').map(|number| number.parse().unwrap()).collect::<Vec<i64>>();
    rows.iter().map(|row| numbers(row).try_into().unwrap()).collect()
}

#[on_each_database]
fn cost_of_an_interrupted_call_is_recorded_once_and_with_its_rest(database: Database) {
    run_on(database, async |scene| {
        // The tokens of the progress and of the whole call, and the expected costs.
        let cases = [
            // More of both: 9 x 1,000 + 50 x 3,000 nano, at a cost of 9 x 1,000 + 50 x 2,000.
            ((9, 20), (9, 50), vec![[1, 9, 50, 159_000, 109_000]]),
            // Less of both: 7 x 1,000 + 10 x 3,000, at a cost of 7 x 1,000 + 10 x 2,000.
            ((9, 20), (7, 10), vec![[2, 16, 60, 196_000, 136_000]]),
            // Less of one, more of the other: 8 x 1,000 + 30 x 3,000, at 8 x 1,000 + 30 x 2,000.
            ((9, 20), (8, 30), vec![[3, 24, 90, 294_000, 204_000]]),
            // No difference: the rest is empty, so no cost is recorded.
            ((9, 20), (9, 20), vec![[3, 24, 90, 294_000, 204_000]]),
        ];
        for ((prompt, completion), (all_prompt, all_completion), due) in cases {
            let before = costs(scene).await;
            let call = scene.open().await;
            scene.extend(&call, progress(prompt, None, completion)).await.unwrap();
            scene.world.clock.advance_ms(60_000);
            assert_eq!((scene.sweep().await, costs(scene).await), (1, before));
            for _ in 0..3 {
                scene.charge(&call, all_prompt, None, all_completion).await;
                assert_eq!(costs(scene).await, due);
            }
        }
    });
}

#[on_each_database]
fn call_that_turns_out_to_have_another_price_is_charged_anew(database: Database) {
    let catalog = ("TOLLKEEPER_CATALOG_FILE", "tests/support/src/components.toml");
    run_with(database, (catalog, "talk"), async |scene| {
        // More than an hour after its prices were recorded, the audit checks the choice.
        scene.world.clock.advance_ms(2 * HOUR_MS);
        // The tokens of the whole call, its tier and price in nano. First 300 + 100 tokens are charged.
        let cases = [
            // 300 x 500 + 120 x 1,500. This tier has no price per request.
            ((300, None, 120), ServiceTier::Flex, 330_000),
            // Above 2,000 tokens: 3,000 x 1,000 + 1,000 x 9,000 + 1,000,000 for the request.
            ((3_000, None, 1_000), ServiceTier::Default, 13_000_000),
        ];
        let mut spent = 0;
        for (whole, tier, nano) in cases {
            let call = scene.open().await;
            scene.extend(&call, progress(300, None, 100)).await.unwrap();
            scene.world.clock.advance_ms(60_000);
            assert_eq!(scene.sweep().await, 1);
            // 300 x 2,000 + 100 x 6,000 + 1,000,000 for the request.
            assert_eq!(scene.wallet().await, (-spent - 2_200_000, 0));
            spent += nano;
            for _ in 0..2 {
                let charged = scene.charge_at(&call, whole, tier).await;
                assert!(!matches!(charged, Charge::Event(Outcome::Conflict)), "{charged:?}");
                let due = [("", 300, 100), (".2", whole.0, whole.2), (".3", -300, -100)];
                assert_eq!(scene.events(&call).await, rows(&due));
                assert_eq!(scene.wallet().await, (-spent, 0), "{tier:?}");
            }
        }
    });
}

#[on_each_database]
fn late_charge_without_a_progress_is_the_whole_call(database: Database) {
    run_on(database, async |scene| {
        let call = scene.open().await;
        scene.extend(&call, None).await.unwrap();
        scene.world.clock.advance_ms(60_000);
        assert_eq!((scene.sweep().await, scene.wallet().await), (1, (0, 0)));
        for outcome in [Outcome::New, Outcome::Duplicate, Outcome::Duplicate] {
            let charged = scene.charge(&call, 9, None, 50).await;
            assert!(matches!(&charged, Charge::Event(found) if *found == outcome), "{charged:?}");
            // 9 x 1,000 + 50 x 3,000 nano.
            assert_eq!(scene.wallet().await, (-159_000, 0));
        }
        assert_eq!(scene.events(&call).await, rows(&[("", 9, 50)]));
        // A call of another caller with the same id isn't the interrupted call.
        let other = OpenCall {
            caller: Caller::user(ProjectId::parse(&scene.place.project).unwrap(), scene.ada.id),
            ..call
        };
        let charged = scene.charge(&other, 9, None, 60).await;
        assert!(matches!(charged, Charge::Event(Outcome::Conflict)), "{charged:?}");
        assert_eq!(scene.wallet().await, (-159_000, 0));
    });
}

#[on_each_database]
fn charge_and_sweep_at_once_count_the_call_once(database: Database) {
    run_on(database, async |scene| {
        for round in 1..=20 {
            let call = scene.open().await;
            scene.extend(&call, progress(9, None, 20)).await.unwrap();
            scene.world.clock.advance_ms(60_000);
            let (charged, _, _) = tokio::join!(
                scene.charge(&call, 9, None, 50),
                scene.sweep(),
                scene.extend(&call, progress(9, None, 50))
            );
            assert!(!matches!(charged, Charge::Event(Outcome::Conflict)), "{charged:?}");
            // 9 x 1,000 + 50 x 3,000 nano.
            assert_eq!(scene.wallet().await, (-159_000 * round, 0), "{charged:?}");
        }
    });
}

#[on_each_database]
fn closed_reservation_is_not_extended_and_holds_until_it_is_charged(database: Database) {
    run_on(database, async |scene| {
        let call = scene.open().await;
        scene.extend(&call, progress(9, None, 20)).await.unwrap();
        scene.world.clock.advance_ms(60_000);
        // A replica has closed the reservation, and was interrupted before it charged the call.
        let now = scene.world.clock.now();
        let mut tx = scene.app().db.write().await.unwrap();
        let closed =
            tollkeeper::billing::store::call_progress::close(&mut tx, call.reservation.id, now).await;
        assert_eq!(closed.unwrap().unwrap().progress, progress(9, None, 20).unwrap());
        tx.commit().await.unwrap();
        assert_eq!(scene.wallet().await, (0, HELD_NANO));
        assert_eq!(scene.extend(&call, progress(9, None, 40)).await, Err(Code::ReservationNotFound));
        let extended = reservations::extend(&scene.app().billing, call.reservation.id).await;
        assert_eq!(extended.unwrap_err().code, Code::ReservationNotFound);
        // 9 x 1,000 + 20 x 3,000 nano.
        assert_eq!((scene.sweep().await, scene.wallet().await), (1, (-69_000, 0)));
        scene.charge(&call, 9, None, 40).await;
        assert_eq!(scene.wallet().await, (-129_000, 0));
        let released = release(&scene.app().billing, call.reservation.id).await;
        assert_eq!(released.unwrap_err().code, Code::ReservationNotFound);
    });
}

#[on_each_database]
fn expired_reservation_that_no_job_has_found_can_be_extended(database: Database) {
    run_on(database, async |scene| {
        let call = scene.open().await;
        scene.extend(&call, progress(9, None, 20)).await.unwrap();
        scene.world.clock.advance_ms(90_000);
        scene.extend(&call, progress(9, None, 40)).await.unwrap();
        assert_eq!((scene.sweep().await, scene.wallet().await), (0, (0, HELD_NANO)));
        let charged = scene.charge(&call, 9, None, 50).await;
        assert!(matches!(charged, Charge::Event(Outcome::New)), "{charged:?}");
        assert_eq!(scene.wallet().await, (-159_000, 0));
    });
}

#[on_each_database]
fn interrupted_call_of_a_deleted_key_and_project_is_charged(database: Database) {
    run_on(database, async |scene| {
        let call = scene.open().await;
        scene.extend(&call, progress(9, None, 20)).await.unwrap();
        let whole = scene.place.organization_path();
        let delete = async |path: &str| {
            let answer = scene.world.call(Method::DELETE, path).bearer(&scene.ada.access_token).send().await;
            if answer.status == 200 { String::new() } else { answer.code() }
        };
        assert_eq!(delete(&format!("{}/api-keys/{}", scene.place.project_path(), scene.key_id)).await, "");
        assert_eq!(delete(&scene.place.project_path()).await, "");
        assert_eq!(delete(&whole).await, "calls_in_progress");
        scene.world.clock.advance_ms(60_000);
        // The money stays reserved until the call is charged, even if that takes long.
        assert_eq!(delete(&whole).await, "calls_in_progress");
        assert_eq!((scene.sweep().await, scene.wallet().await), (1, (-69_000, 0)));
        // A debt of less than a cent is written off.
        assert_eq!((delete(&whole).await, scene.wallet().await), (String::new(), (0, 0)));
        // 30 x 3,000 nano more.
        scene.charge(&call, 9, None, 50).await;
        assert_eq!(scene.wallet().await, (-90_000, 0));
    });
}

#[on_each_database]
fn late_charge_of_a_deleted_organization_counts(database: Database) {
    run_on(database, async |scene| {
        let call = scene.open().await;
        scene.world.clock.advance_ms(60_000);
        assert_eq!(scene.sweep().await, 1);
        scene
            .world
            .call(Method::DELETE, &scene.place.organization_path())
            .bearer(&scene.ada.access_token)
            .data()
            .await;
        let charged = scene.charge(&call, 9, None, 20).await;
        assert!(matches!(charged, Charge::Event(Outcome::New)), "{charged:?}");
        assert_eq!(scene.wallet().await, (-69_000, 0));
    });
}
