//! Margins: hand-calculated sums of calls with costs, and the command (docs/operations.md#costs-and-margins).

use serde_json::{Value, json};
use tollkeeper::billing::audit;
use tollkeeper::billing::calls::{Charge, CostedRoute, charge};
use tollkeeper::billing::margins::{self, CostGroups, Report};
use tollkeeper::billing::usage::{Caller, Event, GATEWAY_SOURCE, Outcome, Usage, record};
use tollkeeper::call_log::entries::{Course, Ended, Operation};
use tollkeeper::catalog::{Component, ComponentPrices, Kind, PartPrices, Parts, ServiceTier, Tokens};
use tollkeeper::clock::Month;
use tollkeeper::db::{Db, sql};
use tollkeeper::ids::{ApiKeyId, OrganizationId};
use tollkeeper::money::Pico;
use tollkeeper::operators::margins::days_of;

use support::books::assert_books;
use support::process::Start;
use support::world::{World, runtime};
use support::{Database, on_each_database};

/// Returns the course of a chat of which nothing else is known.
fn course() -> Course {
    Course::reported(Operation::Chat, Ended::Completed)
}

/// The catalog. The model costs 0.000001 per prompt token, 0.0000001 per cached token, and 0.000003 per
/// completion token.
const CATALOG: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/half_price.toml");
const MODEL: &str = "chat-cached";

fn pico(units: i128) -> Pico {
    Pico::from_units(units)
}

/// Returns a route with cheap tokens and a cost of 0.0001 per call.
fn cheap() -> CostedRoute {
    let costs = ComponentPrices {
        prompt: pico(400_000),
        cached_prompt: Some(pico(50_000)),
        completion: pico(1_000_000),
        parts: PartPrices::default().with(Component::Request, Some(pico(100_000_000))),
    };
    CostedRoute { upstream: "cheap".into(), costs: costs.into() }
}

/// Returns a route whose tokens cost twice as much, and searches 0.01 each.
fn dear() -> CostedRoute {
    let costs = ComponentPrices {
        prompt: pico(800_000),
        cached_prompt: None,
        completion: pico(2_000_000),
        parts: PartPrices::default().with(Component::Search, Some(pico(10_000_000_000))),
    };
    CostedRoute { upstream: "dear".into(), costs: costs.into() }
}

/// Creates an organization. Returns the id of its key.
async fn customer(world: &World, owner: &str, name: &str) -> ApiKeyId {
    let owner = world.user(owner).await;
    let place = world.place(&owner, name).await;
    let (key, _) = world.key(&owner, &place, &json!({"name": "k"})).await;
    ApiKeyId::parse(&key).unwrap()
}

fn event(world: &World, customer: &ApiKeyId, id: &str, used: Tokens) -> Event {
    Event {
        id: id.into(),
        source: GATEWAY_SOURCE.into(),
        time: world.clock.now(),
        usage: Usage {
            caller: Caller::ApiKey(*customer),
            model: MODEL.into(),
            kind: Kind::Chat,
            prompt_tokens: used.prompt,
            completion_tokens: used.completion,
            cached_prompt_tokens: Some(used.cached_prompt).filter(|cached| *cached != 0),
            parts: used.parts.into(),
            service_tier: ServiceTier::default(),
            is_estimated: false,
            rest: None,
            reservation_id: None,
            corrects: None,
        },
    }
}

/// A group with its calls, prompt tokens, completion tokens, income, cost, margin and percentage.
type MarginRow = (String, [i64; 3], [String; 3], String);

fn rows(report: &Report) -> Vec<MarginRow> {
    let row = |row: &margins::GroupCosts| {
        let name = row.model.clone().or_else(|| row.upstream.clone());
        let name = name.or_else(|| row.organization_name.clone()).unwrap_or_default();
        let sums = row.sums;
        let amounts = [sums.amount, sums.cost, sums.margin()].map(|amount| amount.to_string());
        let percent = sums.percent().map_or_else(String::new, |percent| percent.to_string());
        (name, [sums.requests, sums.prompt_tokens, sums.completion_tokens], amounts, percent)
    };
    report.rows.iter().map(row).collect()
}

fn row(name: &str, counts: [i64; 3], amounts: [&str; 3], percent: &str) -> MarginRow {
    (name.to_owned(), counts, amounts.map(str::to_owned), percent.to_owned())
}

async fn read(world: &World, groups: CostGroups) -> Report {
    let month = world.clock.now().day().month();
    margins::read(&world.app.billing, days_of(month), groups).await.unwrap()
}

const BY_MODEL: CostGroups = CostGroups { model: true, organization: false, upstream: false };
const BY_ORGANIZATION: CostGroups = CostGroups { model: false, organization: true, upstream: false };
const BY_UPSTREAM: CostGroups = CostGroups { model: false, organization: false, upstream: true };

#[on_each_database]
fn margins_are_those_that_were_reckoned_by_hand(database: Database) {
    database.run(&[CATALOG], async |world: World| {
        let [acme, bolt] = [customer(&world, "ada", "Acme").await, customer(&world, "bob", "Bolt").await];
        let searches = Parts::default().with(Component::Search, 2);
        let calls = [
            // Price: 60 x 1,000,000 + 40 x 100,000 + 10 x 3,000,000 = 94,000,000 pico.
            // Cost: 60 x 400,000 + 40 x 50,000 + 10 x 1,000,000 + 100,000,000 = 136,000,000.
            (&acme, "1", Some(cheap()), Tokens::new(100, 40, 10)),
            // Price: 100 x 1,000,000 + 10 x 3,000,000 = 130,000,000, because searches have no price.
            // Cost: 100 x 800,000 + 10 x 2,000,000 + 2 x 10,000,000,000 = 20,100,000,000.
            (&acme, "2", Some(dear()), Tokens { parts: searches, ..Tokens::new(100, 0, 10) }),
            // Price: 1,000 x 1,000,000 + 100 x 3,000,000 = 1,300,000,000.
            // Cost: 1,000 x 400,000 + 100 x 1,000,000 + 100,000,000 = 600,000,000.
            (&bolt, "3", Some(cheap()), Tokens::new(1_000, 0, 100)),
            // The cost of this call isn't known.
            (&bolt, "4", None, Tokens::new(1_000, 0, 100)),
        ];
        for (customer, id, route, used) in calls {
            let event = event(&world, customer, id, used);
            // The charge is repeated, as after a lost response, and also by a server with different costs.
            let routes = [route.clone(), route.clone(), Some(dear())];
            for (route, outcome) in routes.iter().zip([Outcome::New, Outcome::Duplicate, Outcome::Duplicate])
            {
                let charged =
                    charge(&world.app.billing, event.clone(), route.as_ref(), course()).await.unwrap();
                assert!(matches!(&charged, Charge::Event(found) if *found == outcome), "{id}: {charged:?}");
            }
        }
        let check = async || {
            let model = [row(MODEL, [3, 1_200, 120], ["0.001524", "0.020836", "-0.019312"], "-1267.19")];
            assert_eq!(rows(&read(&world, BY_MODEL).await), model);
            let organizations = [
                row("Bolt", [1, 1_000, 100], ["0.0013", "0.0006", "0.0007"], "53.85"),
                row("Acme", [2, 200, 20], ["0.000224", "0.020236", "-0.020012"], "-8933.93"),
            ];
            assert_eq!(rows(&read(&world, BY_ORGANIZATION).await), organizations);
            let upstreams = [
                row("cheap", [2, 1_100, 110], ["0.001394", "0.000736", "0.000658"], "47.2"),
                row("dear", [1, 100, 10], ["0.00013", "0.0201", "-0.01997"], "-15361.54"),
            ];
            assert_eq!(rows(&read(&world, BY_UPSTREAM).await), upstreams);
            let all = CostGroups { model: true, organization: true, upstream: true };
            assert_eq!(read(&world, all).await.rows.len(), 3);
            let one = read(&world, CostGroups::default()).await;
            let sum = row("", [3, 1_200, 120], ["0.001524", "0.020836", "-0.019312"], "-1267.19");
            assert_eq!((rows(&one), one.total, &*one.currency), (vec![sum], one.rows[0].sums, "USD"));
        };
        check().await;
        // A correction doesn't reduce the cost: the upstream is still paid.
        let taken = event(&world, &bolt, "5", Tokens::new(-1_000, 0, -100));
        let usage = Usage { corrects: Some("3".into()), ..taken.usage.clone() };
        let outcomes = record(&world.app.billing, vec![Event { usage, ..taken }]).await.unwrap();
        assert_eq!(outcomes, [Outcome::New]);
        check().await;
        let month = world.clock.now().day().month();
        for elsewhere in [month.plus(-1), month.plus(1)] {
            let report = margins::read(&world.app.billing, days_of(elsewhere), CostGroups::default()).await;
            assert!(report.unwrap().rows.is_empty(), "{elsewhere}");
        }
        assert_books(&world).await;
        let report = audit::check(&world.app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.drifts);
    });
}

/// Rows have whole units only if their pico would exceed the limit of a row.
#[on_each_database]
fn large_costs_are_exact(database: Database) {
    database.run(&[CATALOG], async |world: World| {
        let acme = customer(&world, "ada", "Acme").await;
        // The one token costs 999,999.999999999999, close to the maximum cost of a call.
        let costs = ComponentPrices { prompt: pico(999_999_999_999_999_999), ..ComponentPrices::default() };
        let route = CostedRoute { upstream: "gold".into(), costs: costs.into() };
        for id in 0..12 {
            let event = event(&world, &acme, &id.to_string(), Tokens::new(1, 0, 0));
            charge(&world.app.billing, event, Some(&route), course()).await.unwrap();
        }
        // A cost above the maximum isn't recorded, but the call is charged.
        let event = event(&world, &acme, "too dear", Tokens::new(2, 0, 0));
        let charged = charge(&world.app.billing, event, Some(&route), course()).await.unwrap();
        assert!(matches!(charged, Charge::Event(Outcome::New)), "{charged:?}");
        let report = read(&world, BY_UPSTREAM).await;
        // 12 x 999,999.999999999999. The income of each call is a millionth.
        let amounts = ["0.000012", "11999999.999999999988", "-11999999.999987999988"];
        let counts = [12, 12, 0];
        assert_eq!(rows(&report)[0].1, counts);
        assert_eq!(rows(&report)[0].2, amounts.map(str::to_owned));
    });
}

/// Adds rows of costs for this organization and for a deleted one.
async fn insert_costs(start: &Start, organization: &str) {
    let db = Db::open(&start.database_settings()).unwrap();
    let mut tx = db.write().await.unwrap();
    let id = OrganizationId::parse(organization).unwrap();
    let deleted = OrganizationId::parse("org_01h2xcejqtf2nbrexx3vqjhp42").unwrap();
    let first = Month::parse("2026-01").unwrap().first_day();
    for (day, organization, model, upstream, requests, amount, cost) in [
        (0, id, "m-1", "up-1", 2, 1_500_000_000_000_i64, 1_000_000_000_000_i64),
        (30, id, "m-2", "up-2", 1, 200_000_000_000, 250_000_000_000),
        (30, deleted, "m-1", "up-2", 1, 300_000_000_000, 0),
        (31, id, "m-1", "up-1", 7, 9_000_000_000_000, 1),
    ] {
        sql("INSERT INTO daily_costs (day, organization_id, model, upstream, requests, prompt_tokens,
                 completion_tokens, amount_whole, amount_pico, cost_whole, cost_pico)
             VALUES ($1, $2, $3, $4, $5, 10, 20, 0, $6, 0, $7)")
        .bind(first.plus(day))
        .bind(organization)
        .bind(model)
        .bind(upstream)
        .bind(requests)
        .bind(amount)
        .bind(cost)
        .execute(&mut tx)
        .await
        .unwrap();
    }
    tx.commit().await.unwrap();
}

#[on_each_database]
fn command_shows_margins(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let place = server.settle(&server.sign_up("ada"));
        let organization = place.project_path.split('/').nth(3).unwrap();
        runtime().block_on(insert_costs(&start, organization));
        let text = |arguments: &[&str]| {
            let ended = start.command(&[&["margin"], arguments].concat());
            assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""), "{arguments:?}");
            ended.stdout
        };
        let january = "2026-01-01 to 2026-01-31, in USD, income at list price
model  calls  income  cost  margin  percent
m-1        3     1.8     1     0.8   44.44%
m-2        1     0.2  0.25   -0.05     -25%
total      4       2  1.25    0.75    37.5%
";
        assert_eq!(text(&["--month", "2026-01"]), january);
        assert_eq!(text(&["--from", "2026-01-01", "--to", "2026-01-31", "--by", "model"]), january);
        let named = text(&["--month", "2026-01", "--by", "organization,upstream"]);
        let expected = "2026-01-01 to 2026-01-31, in USD, income at list price
organization                                upstream  calls  income  cost  margin  percent
Acme (org_01h2xcejqtf2nbrexx3vqjhp41)       up-1          2     1.5     1     0.5   33.33%
(deleted) (org_01h2xcejqtf2nbrexx3vqjhp42)  up-2          1     0.3     0     0.3     100%
Acme (org_01h2xcejqtf2nbrexx3vqjhp41)       up-2          1     0.2  0.25   -0.05     -25%
total                                                     4       2  1.25    0.75    37.5%
";
        assert_eq!(named.replace(organization, "org_01h2xcejqtf2nbrexx3vqjhp41"), expected);
        let output = text(&["--from", "2026-01-31", "--to", "2026-02-01", "--by", "upstream", "--by", "organization", "--json"]);
        let output: Value = serde_json::from_str(&output).unwrap();
        assert_eq!((&output["start_date"], &output["last_date"]), (&json!("2026-01-31"), &json!("2026-02-01")));
        assert_eq!((&output["currency"], &output["by"]), (&json!("USD"), &json!(["upstream", "organization"])));
        let deleted = json!({"organization_id": "org_01h2xcejqtf2nbrexx3vqjhp42", "upstream": "up-2", "calls": 1,
            "prompt_tokens": 10, "completion_tokens": 20, "income": 0.3, "cost": 0, "margin": 0.3, "margin_percent": 100});
        assert_eq!(output["rows"][1], deleted);
        assert_eq!(output["rows"][0]["organization_name"], "Acme");
        // 9.5 less 0.250000000001, which is 97.368421… percent.
        let total = json!({"calls": 9, "prompt_tokens": 30, "completion_tokens": 60, "income": 9.5,
            "cost": 0.250000000001, "margin": 9.249999999999, "margin_percent": 97.37});
        assert_eq!(output["total"], total);
        let empty = text(&["--month", "2025-12"]);
        assert!(empty.starts_with("No call from 2025-12-01 to 2025-12-31 has a cost.") && empty.contains("`cost`"), "{empty}");
        let empty: Value = serde_json::from_str(&text(&["--month", "2025-12", "--json"])).unwrap();
        assert_eq!((&empty["rows"], &empty["total"]["margin_percent"]), (&json!([]), &Value::Null));
        // Without dates, the command shows the current month.
        assert!(text(&[]).starts_with("No call from "));
        for (arguments, code, words) in [
            (vec!["--month", "January"], 2, "write a month such as 2026-01"),
            (vec!["--from", "soon"], 2, "write a date such as 2026-01-31"),
            (vec!["--to", "2026-01-31"], 2, "--from"),
            (vec!["--month", "2026-01", "--from", "2026-01-01"], 2, "cannot be used with"),
            (vec!["--by", "key"], 2, "possible values: model, organization, upstream"),
            (
                vec!["--from", "2026-01-31", "--to", "2026-01-30"],
                1,
                "--to: 2026-01-30 is before the first day, 2026-01-31",
            ),
        ] {
            let ended = start.command(&[&["margin"], &arguments[..]].concat());
            assert!(ended.code == Some(code) && ended.log.contains(words), "{arguments:?}: {}", ended.log);
        }
        assert_eq!(server.stop().code, Some(0));
    });
}
