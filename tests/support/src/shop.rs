//! An organization that pays, and the Stripe account that receives its payments.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{Clock, Time};
use tollkeeper::db::sql;
use tollkeeper::ids::PaymentId;
use tollkeeper::payments::jobs;
use tollkeeper::payments::payments::{self as operations, Payment};

use crate::billed;
use crate::database::{Database, Fresh};
use crate::http::Answer;
use crate::stripe::cards::Card;
use crate::stripe::{FakeStripe, WEBHOOK_SECRET};
use crate::transcript::{Books, CATALOG};
use crate::world::{Folder, START, World};

pub struct Shop<'a> {
    pub books: Books<'a>,
    pub stripe: &'a FakeStripe,
}

/// Runs a test with payments. Checks the books at the end.
pub fn with_shop(database: Database, test: impl AsyncFnOnce(&mut Shop)) {
    with_configured_shop(database, &[], test);
}

/// Like [`with_shop`], with further settings.
pub fn with_configured_shop(
    database: Database,
    settings: &[(&str, &str)],
    test: impl AsyncFnOnce(&mut Shop),
) {
    database.block_on(open_shop(database, settings, test));
}

/// Runs a test in a new shop with a new database.
pub async fn open_shop(database: Database, settings: &[(&str, &str)], test: impl AsyncFnOnce(&mut Shop)) {
    let Fresh { backend, url } = database.fresh().await;
    let clock = Clock::fixed(Time::parse(START).unwrap());
    let stripe = FakeStripe::start(&clock).await;
    let folder = Folder::new();
    let of_stripe = stripe.settings(&folder.0);
    let mut all = vec![CATALOG];
    all.extend(of_stripe.iter().map(|(name, value)| (*name, value.as_str())));
    all.extend_from_slice(settings);
    let world = World::with_clock(backend, url, &all, clock).await;
    let books = Books::open(&world, START).await;
    let mut shop = Shop { books, stripe: &stripe };
    test(&mut shop).await;
    shop.check().await;
}

impl Shop<'_> {
    pub fn world(&self) -> &World {
        self.books.world
    }

    /// Returns a token of a new session, because the clock advances by weeks during a test.
    pub async fn token(&self) -> String {
        self.world().session(self.books.ada.id).await.access_token
    }

    pub fn path(&self, rest: &str) -> String {
        format!("{}/billing/{rest}", self.books.place.organization_path())
    }

    /// Runs the jobs that are due.
    pub async fn work(&self) {
        jobs::run_due(&self.world().app.payments).await.unwrap();
        self.tick();
    }

    /// Advances the clock, because events in the same millisecond have no defined order.
    fn tick(&self) {
        self.pass_ms(1);
    }

    pub fn pass_ms(&self, ms: i64) {
        self.world().clock.advance_ms(ms);
    }

    /// Starts a payment.
    pub async fn begin(&self, body: &Value) -> Value {
        let call = self.world().post(&self.path("payments"), body).bearer(&self.token().await);
        let begun = call.data().await;
        self.tick();
        begun
    }

    /// Returns a payment from the API.
    pub async fn payment(&self, id: &Value) -> Value {
        let path = self.path(&format!("payments/{}", id.as_str().unwrap()));
        self.world().get(&path).bearer(&self.token().await).data().await
    }

    /// Returns a payment from the database.
    pub async fn row(&self, id: &Value) -> Payment {
        let id = PaymentId::parse(id.as_str().unwrap()).unwrap();
        operations::read(&self.world().app.payments, id).await.unwrap().unwrap()
    }

    /// Returns all payments from the database, oldest first.
    pub async fn rows(&self) -> Vec<Payment> {
        let page = tollkeeper::db::Page { page: 1, page_size: 100 };
        let id = self.books.organization_id();
        let mut rows = operations::list_for_operator(&self.world().app.payments, id, page).await.unwrap();
        rows.reverse();
        rows
    }

    /// Returns the checkout session of a payment.
    pub async fn session(&self, id: &Value) -> String {
        self.row(id).await.session_id.unwrap()
    }

    /// Delivers one event from Stripe.
    pub async fn send(&self, event_id: &str) -> Answer {
        let (signature, body) = self.stripe.packed(event_id, WEBHOOK_SECRET);
        self.send_raw(&signature, body.as_bytes()).await
    }

    pub async fn send_raw(&self, signature: &str, body: &[u8]) -> Answer {
        let call = self.world().call(Method::POST, "/v1/billing/stripe/events").raw(body);
        call.header("content-type", "application/json; charset=utf-8")
            .header("stripe-signature", signature)
            .send()
            .await
    }

    /// Delivers all undelivered events from Stripe, and processes them.
    pub async fn hear(&self) {
        for event in self.stripe.undelivered() {
            assert_eq!(self.send(event["id"].as_str().unwrap()).await.status, 200);
        }
        self.stripe.drop_events();
        self.work().await;
    }

    /// Buys credit, and returns the id of the payment.
    pub async fn buy(&self, amount: &str, save_card: bool) -> Value {
        self.buy_by(amount, save_card, &Card::visa()).await
    }

    pub async fn buy_by(&self, amount: &str, save_card: bool, card: &Card) -> Value {
        let begun = self.begin(&json!({"amount": amount, "save_card": save_card})).await;
        self.stripe.visit(&self.session(&begun["id"]).await, card).unwrap();
        self.hear().await;
        begun["id"].clone()
    }

    /// Adds credit that wasn't paid through Stripe.
    pub async fn buy_elsewhere(&mut self, amount: &str, reference: &str) {
        self.books.buy_credit(amount, reference).await;
        self.tick();
    }

    /// Returns the posted balance.
    pub async fn balance(&self) -> String {
        let mut tx = self.world().app.db.read().await.unwrap();
        let id = self.books.organization_id();
        let wallet = tollkeeper::billing::store::wallets::get(&mut tx, id).await.unwrap().unwrap();
        wallet.posted.to_string()
    }

    /// Returns the kind, the amount and the remaining amount of each credit, in order of creation.
    pub async fn credits(&self) -> Vec<String> {
        let answer = self.world().get(&self.path("credits")).bearer(&self.token().await).data().await;
        let mut credits: Vec<_> = answer["credits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|credit| {
                format!(
                    "{} {} of {}",
                    credit["kind"].as_str().unwrap(),
                    credit["remaining"],
                    credit["amount"]
                )
            })
            .collect();
        credits.reverse();
        credits
    }

    /// Configures the automatic top-up.
    pub async fn top_up(&self, body: &Value) -> Value {
        let call = self.world().call(Method::PUT, &self.path("auto-top-up")).json(body);
        call.bearer(&self.token().await).data().await
    }

    pub async fn read_top_up(&self) -> Value {
        self.world().get(&self.path("auto-top-up")).bearer(&self.token().await).data().await
    }

    /// Returns the number that a query selects.
    pub async fn count(&self, text: &'static str) -> i64 {
        let (count,): (i64,) = sql(text).one(&mut self.world().app.db.read().await.unwrap()).await.unwrap();
        count
    }

    /// Checks the books with the rules of the tests and with the service's own audit.
    pub async fn check(&self) {
        billed::check(self.world(), &self.books.place.organization).await;
    }
}
