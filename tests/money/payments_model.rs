//! Random histories of payments with faults. Requests to Stripe and its events are lost, repeated or late,
//! and processes die in the middle of their jobs. In the end both sides must have the same sums, each charge
//! must be one payment, and the audit must find nothing. In half of the histories Stripe adds a tax, and in
//! half of them processes die.
//!
//! A seed determines a history. If a history fails, the test prints it. `TOLLKEEPER_TEST_SEED` runs it first
//! ([`support::seeds`]).

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS};
use tollkeeper::money::Nano;
use tollkeeper::payments::payments::{Payment, PaymentStatus};
use tollkeeper::payments::refunds;
use tollkeeper::trail::Trail;

use support::chance::Chance;
use support::seeds::Seeds;
use support::shop::{Shop, open_shop};
use support::stripe::cards::{Card, NO_FUNDS, Outcome, STOLEN};
use support::stripe::refunds::RefundOutcome;
use support::{Database, on_each_database};

/// The number of histories in a complete run.
const HISTORIES_ON_SQLITE: u64 = 20;
const HISTORIES_ON_POSTGRES: u64 = 5;
const STEPS: usize = 60;

#[on_each_database]
fn both_sides_have_the_same_sums(database: Database) {
    database.block_on(play(database));
}

async fn play(database: Database) {
    let mut tally = BTreeMap::new();
    let seeds = Seeds::of("payments_model", database.choose(HISTORIES_ON_SQLITE, HISTORIES_ON_POSTGRES));
    for &seed in &seeds.seeds {
        let (is_taxed, processes_die) = (seed % 2 == 1, seed / 2 % 2 == 1);
        let tax = if is_taxed { "true" } else { "false" };
        let settings = [("TOLLKEEPER_LIMITS__ENABLED", "false"), ("TOLLKEEPER_PAYMENTS__STRIPE_TAX", tax)];
        open_shop(database, &settings, async |shop: &mut Shop| {
            let mut history = History {
                chance: Chance::new(seed),
                said: vec![format!("seed {seed} on {database:?}, tax {tax}")],
                is_taxed,
            };
            shop.stripe.fail_at_random(seed, 25);
            let mut deaths = Chance::new(!seed);
            for _ in 0..STEPS {
                history.step(shop).await;
                if processes_die && deaths.below(8) == 0 {
                    let waits = deaths.below(60);
                    history.said.push(format!("the process is killed after {waits} waits"));
                    die(shop, waits).await;
                }
            }
            history.settle(shop).await;
            history.compare(shop).await;
        })
        .await;
        *tally.entry("histories").or_insert(0) += 1;
    }
    println!("{database:?}: {tally:?}");
}

/// Runs the jobs of a process that dies in the middle of them: they are dropped after this number of waits.
async fn die(shop: &Shop<'_>, mut waits: usize) {
    let mut work = pin!(shop.work());
    poll_fn(|cx| {
        if waits == 0 {
            return Poll::Ready(());
        }
        waits -= 1;
        work.as_mut().poll(cx)
    })
    .await;
}

struct History {
    chance: Chance,
    said: Vec<String>,
    is_taxed: bool,
}

impl History {
    async fn step(&mut self, shop: &mut Shop<'_>) {
        let what = self.chance.below(16);
        self.said.push(format!("{} step {what}", shop.world().clock.now()));
        match what {
            0 | 1 => self.begin(shop).await,
            2..=4 => self.pay(shop).await,
            5 | 6 => self.deliver(shop).await,
            7 | 8 => shop.work().await,
            9 => {
                let ms =
                    self.chance.one_of(&[10_000, MINUTE_MS, 6 * MINUTE_MS, HOUR_MS, 13 * HOUR_MS, DAY_MS]);
                shop.pass_ms(ms);
            }
            // A token costs 0.0000025, so up to 25 are used.
            10 | 11 => {
                let tokens = 1 + self.chance.below(10_000_000) as i64;
                shop.books.use_today("chat-a", tokens, 0).await;
            }
            12 => self.refund(shop).await,
            13 => self.by_hand(shop),
            14 => self.top_up(shop).await,
            _ => self.change_cards(shop),
        }
    }

    async fn begin(&mut self, shop: &Shop<'_>) {
        let amount = 5 + self.chance.below(40);
        let body = json!({"amount": amount, "save_card": self.chance.below(2) == 0});
        let mut call = shop.world().post(&shop.path("payments"), &body).bearer(&shop.token().await);
        if self.chance.below(2) == 0 {
            call = call.header("idempotency-key", &format!("{}-{amount}", self.chance.below(5)));
        }
        let status = call.send().await.status;
        assert!([200, 409, 502].contains(&status), "{status}");
    }

    async fn pay(&mut self, shop: &Shop<'_>) {
        let (rows, sessions) = (shop.rows().await, shop.stripe.all("checkout.session"));
        // The URL of a page is unknown if the answer with it was lost.
        let is_known =
            |session: &&Value| rows.iter().any(|row| row.session_id.as_deref() == session["id"].as_str());
        let open: Vec<_> = sessions.iter().filter(|it| it["status"] == "open").filter(is_known).collect();
        if open.is_empty() {
            return;
        }
        let session = open[self.chance.below(open.len())];
        let numbers = ["4242424242424242", "4000000000000002", "4000000000000341", "4000002760003184"];
        let card = Card::numbered(self.chance.one_of(&numbers));
        // A declined card changes nothing.
        drop(shop.stripe.visit(session["id"].as_str().unwrap(), &card));
    }

    async fn deliver(&mut self, shop: &Shop<'_>) {
        let mut ids: Vec<_> =
            shop.stripe.undelivered().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
        for at in (1..ids.len()).rev() {
            ids.swap(at, self.chance.below(at + 1));
        }
        for id in ids {
            match self.chance.below(4) {
                // The event is lost: Stripe stops sending it at some point.
                0 => {}
                1 => {
                    for _ in 0..2 {
                        assert_eq!(shop.send(&id).await.status, 200);
                    }
                }
                _ => assert_eq!(shop.send(&id).await.status, 200),
            }
        }
        shop.stripe.drop_events();
    }

    async fn refund(&mut self, shop: &Shop<'_>) {
        let outcomes = [RefundOutcome::Succeeds, RefundOutcome::Succeeds, RefundOutcome::Fails];
        shop.stripe.set_refunds(self.chance.one_of(&outcomes));
        let rows = shop.rows().await;
        let paid: Vec<_> = rows.iter().filter(|row| row.status == PaymentStatus::Succeeded).collect();
        if paid.is_empty() {
            return;
        }
        let row = paid[self.chance.below(paid.len())];
        let amount = match self.chance.below(2) {
            0 => None,
            _ => Some(Nano::from_units(1_000_000_000 * (1 + self.chance.below(9)) as i128)),
        };
        // The refund is refused if nothing is left.
        let refund = refunds::refund(&shop.world().app.payments, row.id, amount, &Trail::operator()).await;
        self.said.push(format!(
            "{} is refunded {amount:?}: {:?}",
            row.id,
            refund.map_err(|error| error.to_string())
        ));
    }

    /// Makes a change from outside the service: a refund in the dashboard, a customer's dispute, or a bank's
    /// decision.
    fn by_hand(&mut self, shop: &Shop<'_>) {
        let disputes = shop.stripe.all("dispute");
        let is_open = |dispute: &&Value| {
            ["needs_response", "warning_needs_response"].contains(&dispute["status"].as_str().unwrap())
        };
        let open: Vec<_> = disputes.iter().filter(is_open).collect();
        if !open.is_empty() && self.chance.below(2) == 0 {
            let dispute = open[self.chance.below(open.len())];
            return self.decide(shop, dispute);
        }
        let charges = shop.stripe.charges();
        let good: Vec<_> = charges
            .iter()
            .filter(|charge| charge["disputed"] == false && charge["refunded"] == false)
            .collect();
        if good.is_empty() {
            return;
        }
        let charge = good[self.chance.below(good.len())];
        let (intent_id, amount) =
            (charge["payment_intent"].as_str().unwrap(), charge["amount"].as_i64().unwrap());
        match self.chance.below(4) {
            0 | 1 => {
                let left = amount - charge["amount_refunded"].as_i64().unwrap();
                let part = 1 + self.chance.below(left as usize) as i64;
                self.said.push(format!("{part} of {intent_id} are refunded by hand"));
                shop.stripe.refund_by_hand(intent_id, part);
            }
            2 => {
                self.said.push(format!("{amount} of {intent_id} are disputed"));
                let id = shop.stripe.dispute(intent_id, amount);
                return_refunded(shop, &id);
            }
            _ => {
                self.said.push(format!("a bank inquires about {amount} of {intent_id}"));
                shop.stripe.inquire(intent_id, amount);
            }
        }
    }

    /// Makes a bank's decision about a dispute or an inquiry.
    fn decide(&mut self, shop: &Shop<'_>, dispute: &Value) {
        let id = dispute["id"].as_str().unwrap();
        self.said.push(format!("a bank decides about {id} of {}", dispute["payment_intent"]));
        if dispute["status"] == "warning_needs_response" {
            match self.chance.below(4) {
                0 => shop.stripe.close_dispute(id, false),
                1 => shop.stripe.end_dispute(id, "prevented"),
                _ => {
                    shop.stripe.escalate(id);
                    return_refunded(shop, id);
                }
            }
            return;
        }
        let held = held(dispute);
        match self.chance.below(4) {
            // The bank returns a part of the payment, and may take it again.
            0 if held > 0 => {
                let part = 1 + self.chance.below(held as usize) as i64;
                shop.stripe.move_disputed(id, part, "usd");
                if self.chance.below(2) == 0 {
                    shop.stripe.move_disputed(id, -part, "usd");
                }
                shop.stripe.end_dispute(id, self.chance.one_of(&["won", "lost"]));
            }
            1 => shop.stripe.end_dispute(id, "lost"),
            _ => {
                if held > 0 {
                    shop.stripe.move_disputed(id, held, "usd");
                }
                shop.stripe.end_dispute(id, "won");
            }
        }
    }

    async fn top_up(&mut self, shop: &Shop<'_>) {
        let cap = self.chance.one_of(&[None, Some(60), Some(200)]);
        let restore_to = 20 + self.chance.below(30);
        let enabled = self.chance.below(5) > 0;
        let body = json!({"enabled": enabled, "threshold": 5, "restore_to": restore_to, "monthly_cap": cap});
        let call = shop.world().call(Method::PUT, &shop.path("auto-top-up")).json(&body);
        let status = call.bearer(&shop.token().await).send().await.status;
        assert!([200, 409].contains(&status), "{status}");
    }

    fn change_cards(&mut self, shop: &Shop<'_>) {
        for card in shop.stripe.all("payment_method") {
            let outcomes =
                [Outcome::Succeeds, Outcome::Succeeds, NO_FUNDS, STOLEN, Outcome::AuthenticationRequired];
            let outcome = self.chance.one_of(&outcomes);
            shop.stripe.set_outcome(card["id"].as_str().unwrap(), outcome);
        }
        if self.chance.below(3) == 0 {
            shop.stripe.forget_keys();
        }
        if self.is_taxed {
            shop.stripe.set_tax(self.chance.one_of(&[0, 88_750, 190_000, 1_000_000]));
            for customer in shop.stripe.all("customer") {
                if self.chance.below(4) == 0 {
                    shop.stripe.forget_address(customer["id"].as_str().unwrap());
                }
            }
        }
    }

    /// Ends all faults, and completes everything in progress.
    async fn settle(&mut self, shop: &mut Shop<'_>) {
        shop.stripe.heal();
        for _ in 0..12 {
            // Lost events stay lost. The daily comparison finds the changes that they would have reported.
            shop.stripe.drop_events();
            for _ in 0..3 {
                shop.work().await;
            }
            shop.pass_ms(self.chance.one_of(&[10 * MINUTE_MS, 7 * HOUR_MS, DAY_MS + MINUTE_MS]));
        }
        // The last comparison may have found events, which the next runs process.
        for _ in 0..3 {
            shop.work().await;
        }
    }

    async fn compare(&self, shop: &Shop<'_>) {
        let story = || self.said.join("\n");
        let rows = shop.rows().await;
        let paid: Vec<_> = rows.iter().filter(|row| row.status == PaymentStatus::Succeeded).collect();
        let charges = shop.stripe.charges();
        let mut at_stripe: Vec<_> =
            charges.iter().map(|it| it["payment_intent"].as_str().unwrap().to_owned()).collect();
        let mut here: Vec<_> = paid.iter().map(|row| row.intent_id.clone().unwrap()).collect();
        at_stripe.sort();
        here.sort();
        let intents: Vec<_> = shop
            .stripe
            .all("payment_intent")
            .iter()
            .map(|it| format!("{} {}", it["id"], it["metadata"]))
            .collect();
        assert_eq!(here, at_stripe, "each charge is one payment\n{}\n{intents:?}", story());
        let sum: i64 = paid.iter().map(|row| row.total_minor().unwrap() - returned(row)).sum();
        assert_eq!(sum, shop.stripe.balance(), "the sums of both sides\n{}", story());
        for row in &paid {
            let net = row.refunded_minor + row.disputed_minor;
            assert!((0..=row.amount_minor).contains(&net), "{row:?}\n{}", story());
            let tax = row.tax_minor.unwrap();
            assert!((0..=tax).contains(&row.returned_tax_minor), "{row:?}\n{}", story());
            assert!(row.is_taxed == self.is_taxed && (row.is_taxed || tax == 0), "{row:?}\n{}", story());
        }
        let stuck = shop.count("SELECT COUNT(*) FROM stripe_events WHERE done_at IS NULL").await;
        assert_eq!(stuck, 0, "{}", story());
        let pending = shop.count("SELECT COUNT(*) FROM payment_refunds WHERE status = 'pending'").await;
        assert_eq!(pending, 0, "{}", story());
        let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:?}\n{}", report.drifts, story());
    }
}

/// Returns the amount of a disputed payment that the bank has, in cents.
fn held(dispute: &Value) -> i64 {
    let moved = dispute["balance_transactions"].as_array().unwrap().iter();
    -moved.map(|moved| moved["amount"].as_i64().unwrap()).sum::<i64>()
}

/// Returns the part of a disputed payment that was already refunded, because the bank has taken the whole
/// payment.
fn return_refunded(shop: &Shop<'_>, dispute_id: &str) {
    let charge_id = shop.stripe.object(dispute_id)["charge"].as_str().unwrap().to_owned();
    let refunded = shop.stripe.object(&charge_id)["amount_refunded"].as_i64().unwrap();
    if refunded > 0 {
        shop.stripe.move_disputed(dispute_id, refunded, "usd");
    }
}

/// Returns the amount of a payment that was refunded or is disputed, with its tax, in minor units.
fn returned(row: &Payment) -> i64 {
    row.refunded_minor + row.disputed_minor + row.returned_tax_minor
}
