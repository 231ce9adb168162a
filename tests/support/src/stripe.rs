//! A fake Stripe: an account in memory, with customers who pay, banks that decline, and a network that fails.
//!
//! The fake implements the part of Stripe's API that card payments need. `tests/money/stripe` checks it with
//! Stripe's own libraries.

mod account;
pub mod api;
pub mod cards;
mod checkout;
mod customers;
mod disputes;
pub mod faults;
pub mod intents;
pub mod params;
pub mod problem;
pub mod refunds;
pub mod state;
mod taxes;
pub mod webhook;
mod wire;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tollkeeper::clock::{Clock, Time};
use tollkeeper::kernel::secrets::Secret;
use tollkeeper::kernel::urls::BaseUrl;
use tollkeeper::stripe::{Client, Settings};

use api::{Account, Answer, Begun, Request};
use cards::{Card, Outcome};
use faults::{Fault, Faults};
use params::Params;
use problem::Problem;
use refunds::RefundOutcome;
use state::State;

use super::database::{Database, Fresh};
use super::world::{Folder, START, World};

/// The secret key of the account.
pub const SECRET_KEY: &str = "sk_test_fake";
/// The secret of the account's webhook.
pub const WEBHOOK_SECRET: &str = "whsec_fake";

/// Runs a test with these settings and with payments at a new account.
pub fn with_payments(database: Database, settings: &[(&str, &str)], test: impl AsyncFnOnce(World)) {
    database.block_on(async {
        let Fresh { backend, url } = database.fresh().await;
        let clock = Clock::fixed(Time::parse(START).unwrap());
        let (stripe, folder) = (FakeStripe::start(&clock).await, Folder::new());
        let of_stripe = stripe.settings(&folder.0);
        let of_stripe = of_stripe.iter().map(|(name, value)| (*name, value.as_str()));
        let settings: Vec<_> = settings.iter().copied().chain(of_stripe).collect();
        test(World::with_clock(backend, url, &settings, clock).await).await;
    });
}

/// A received request, with its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub request: Request,
    /// The fault that was injected, if any.
    pub fault: Option<Fault>,
    /// The answer, or `None` if the request was lost.
    pub answer: Option<Answer>,
}

/// A running account. It stops when this value is dropped.
pub struct FakeStripe {
    /// The address of the API.
    pub url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    account: Mutex<Account>,
    exchanges: Mutex<Vec<Exchange>>,
    faults: Mutex<Faults>,
    held: Held,
}

/// The notifications about the answer that is held back.
#[derive(Default)]
struct Held {
    executed: Notify,
    released: Notify,
}

impl FakeStripe {
    /// Starts an account that uses the time of this clock.
    pub async fn start(clock: &Clock) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let account = Mutex::new(Account::new(State::new(clock.clone(), url.clone(), 1)));
        let (exchanges, faults, held) = (Mutex::default(), Mutex::default(), Held::default());
        let shared = Arc::new(Shared { account, exchanges, faults, held });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Self { url, shared, task }
    }

    /// Returns the settings of a server that uses this account for payments. Writes the secrets to files in
    /// the folder.
    pub fn settings(&self, folder: &Path) -> [(&'static str, String); 3] {
        let file = |name: &str, secret: &str| {
            let path = folder.join(name);
            std::fs::write(&path, secret).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        [
            ("TOLLKEEPER_PAYMENTS__STRIPE_SECRET_KEY_FILE", file("key", SECRET_KEY)),
            ("TOLLKEEPER_PAYMENTS__STRIPE_WEBHOOK_SECRET_FILE", file("secret", WEBHOOK_SECRET)),
            ("TOLLKEEPER_PAYMENTS__STRIPE_API_URL", self.url.clone()),
        ]
    }

    /// Returns a client for this account.
    pub fn client(&self) -> Client {
        self.client_with_timeout(Duration::from_secs(20))
    }

    /// Returns a client for this account with a timeout.
    pub fn client_with_timeout(&self, timeout: Duration) -> Client {
        let url = BaseUrl::parse(&self.url).unwrap();
        let settings = Settings::new(Secret::new(SECRET_KEY), Some(url)).unwrap();
        Client::new(Settings { timeout, ..settings }).unwrap()
    }

    /// Injects a fault into the next request with this method and with a path that starts with `path`.
    pub fn fail_next(&self, method: &'static str, path: &str, fault: Fault) {
        self.shared.faults.lock().unwrap().plan(method, path, fault);
    }

    /// Injects faults into requests at random.
    pub fn fail_at_random(&self, seed: u64, percent: usize) {
        self.shared.faults.lock().unwrap().at_random(seed, percent);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// Waits until a request whose answer is held back ([`Fault::Held`]) has been executed.
    pub async fn executed(&self) {
        self.shared.held.executed.notified().await;
    }

    /// Sends the answer that was held back.
    pub fn release(&self) {
        self.shared.held.released.notify_one();
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Account) -> T) -> T {
        use_it(&mut self.shared.account.lock().unwrap())
    }

    /// Pays with a card on the page of a checkout session, or saves the card, as the customer.
    ///
    /// # Errors
    /// The card was declined, or the session isn't open.
    pub fn visit(&self, session_id: &str, card: &Card) -> Result<(), Problem> {
        self.with(|account| account.state.visit(session_id, card))
    }

    /// Makes a processing payment succeed or fail.
    pub fn settle(&self, intent_id: &str, succeeds: bool) {
        self.with(|account| account.state.settle(intent_id, succeeds));
    }

    /// Sets the outcome of later charges to a payment method.
    pub fn set_outcome(&self, payment_method_id: &str, outcome: Outcome) {
        self.with(|account| account.state.cards.get_mut(payment_method_id).unwrap().later = outcome);
    }

    /// Sets the outcome of later refunds.
    pub fn set_refunds(&self, outcome: RefundOutcome) {
        self.with(|account| account.state.refund_outcome = outcome);
    }

    /// Makes a pending refund succeed, or makes a pending or succeeded refund fail.
    pub fn settle_refund(&self, refund_id: &str, succeeds: bool) {
        self.with(|account| account.state.settle_refund(refund_id, succeeds));
    }

    /// Refunds a part of a payment, as in Stripe's dashboard, and returns the id of the refund.
    pub fn refund_by_hand(&self, intent_id: &str, amount: i64) -> String {
        self.with(|account| {
            let charge = account.state.get(intent_id)["latest_charge"].as_str().unwrap().to_owned();
            account.state.refund(&charge, Some(amount)).unwrap()
        })
    }

    /// Disputes an amount of a payment, as the customer. The bank withdraws the amount immediately. Returns
    /// the id of the dispute.
    pub fn dispute(&self, intent_id: &str, amount: i64) -> String {
        self.with(|account| account.state.dispute(intent_id, amount, false))
    }

    /// Opens an inquiry about a payment, as the customer's bank. No money is withdrawn yet. Returns the id of
    /// the dispute.
    pub fn inquire(&self, intent_id: &str, amount: i64) -> String {
        self.with(|account| account.state.dispute(intent_id, amount, true))
    }

    /// Turns an inquiry into a dispute.
    pub fn escalate(&self, dispute_id: &str) {
        self.with(|account| account.state.escalate(dispute_id));
    }

    /// Withdraws an amount because of a dispute (negative), or reinstates one, in the currency of the
    /// account.
    pub fn move_disputed(&self, dispute_id: &str, amount: i64, currency: &str) {
        self.with(|account| account.state.move_disputed(dispute_id, amount, currency));
    }

    /// Ends a dispute with this status, without moving money.
    pub fn end_dispute(&self, dispute_id: &str, status: &str) {
        self.with(|account| account.state.end_dispute(dispute_id, status));
    }

    /// Decides a dispute, as the bank.
    pub fn close_dispute(&self, dispute_id: &str, is_won: bool) {
        self.with(|account| account.state.close_dispute(dispute_id, is_won));
    }

    /// Sets the types of events that are sent to the webhook.
    pub fn subscribe(&self, kinds: &[&str]) {
        self.with(|account| {
            let id = account.state.all("webhook_endpoint")[0]["id"].as_str().unwrap().to_owned();
            account.state.edit(&id, |endpoint| endpoint["enabled_events"] = kinds.into());
        });
    }

    /// Forbids the key to use paths that start with these prefixes.
    pub fn forbid(&self, paths: &[&str]) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.with(|account| account.state.forbidden = paths);
    }

    /// Sets the state of a capability of the account.
    pub fn set_capability(&self, name: &str, status: &str) {
        self.with(|account| account.state.capabilities[name] = status.into());
    }

    /// Detaches a saved card from its customer, as in Stripe's dashboard.
    pub fn detach_by_hand(&self, payment_method_id: &str) {
        self.with(|account| account.state.detach(payment_method_id).unwrap());
    }

    /// Sets whether new objects are in live mode, and sets the tax rate in percent.
    pub fn set_account(&self, livemode: bool, tax_percent: i64) {
        let tax_ppm = tax_percent * 10_000;
        self.with(|account| (account.state.livemode, account.state.tax_ppm) = (livemode, tax_ppm));
    }

    /// Sets the tax rate in millionths.
    pub fn set_tax(&self, tax_ppm: i64) {
        self.with(|account| account.state.tax_ppm = tax_ppm);
    }

    /// Removes the address of a customer.
    pub fn forget_address(&self, customer_id: &str) {
        self.edit(customer_id, |customer| customer["address"] = Value::Null);
    }

    /// Deletes a customer, as in Stripe's dashboard.
    pub fn delete_customer(&self, customer_id: &str) {
        self.with(|account| account.state.delete_customer(customer_id).unwrap());
    }

    /// Returns the payment intents whose calculated taxes were recorded, by the id of the calculation.
    pub fn recorded_taxes(&self) -> BTreeMap<String, String> {
        self.with(|account| account.state.recorded_taxes.clone())
    }

    /// Removes the idempotency keys, as Stripe does after a day.
    pub fn forget_keys(&self) {
        self.with(Account::forget_keys);
    }

    /// Returns an object.
    pub fn object(&self, id: &str) -> Value {
        self.with(|account| account.state.get(id).clone())
    }

    /// Changes an object without creating an event.
    pub fn edit(&self, id: &str, change: impl FnOnce(&mut Value)) {
        self.with(|account| account.state.edit(id, change));
    }

    /// Returns the objects of a kind, such as `payment_intent` or `checkout.session`, oldest first.
    pub fn all(&self, kind: &str) -> Vec<Value> {
        self.with(|account| account.state.all(kind).into_iter().cloned().collect())
    }

    /// Returns the succeeded charges, oldest first.
    pub fn charges(&self) -> Vec<Value> {
        self.all("charge").into_iter().filter(|charge| charge["status"] == "succeeded").collect()
    }

    /// Returns the sum of all changes to the account's balance, without fees.
    pub fn balance(&self) -> i64 {
        self.with(|account| account.state.balance())
    }

    /// Returns the received requests, with their answers.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.shared.exchanges.lock().unwrap().clone()
    }
}

impl Drop for FakeStripe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some(request) = wire::read(&mut stream).await else { return };
    if let Some(session_id) = request.path.strip_prefix("/c/pay/") {
        let (status, head, body) = page(&shared, session_id, &request);
        wire::write_bytes(&mut stream, status, &head, &body).await;
        return;
    }
    let fault = shared.faults.lock().unwrap().next(&request);
    let (answer, request_id) = answer(&request, fault, &shared).await;
    let exchange = Exchange { request, fault, answer: answer.clone() };
    shared.exchanges.lock().unwrap().push(exchange);
    match (answer, fault) {
        (None, _) | (_, Some(Fault::LostAnswer)) => {}
        (Some(answer), Some(Fault::HalfAnswer)) => wire::write_half(&mut stream, &answer).await,
        (_, Some(Fault::Silence)) => wire::wait_for_end(&mut stream).await,
        (Some(answer), _) => wire::write(&mut stream, &answer, &request_id).await,
    }
}

/// Returns the answer to a request, and the id of the request. Applies the fault. The answer is `None` if the
/// request was lost.
async fn answer(request: &Request, fault: Option<Fault>, shared: &Shared) -> (Option<Answer>, String) {
    let request_id = shared.account.lock().unwrap().next_request_id();
    let refused = |problem| (Some(api::answer(Err(problem))), request_id.clone());
    match fault {
        Some(Fault::LostRequest) => return (None, request_id),
        Some(Fault::ErrorBefore) => return refused(Problem::internal()),
        Some(Fault::TooMany) => return refused(Problem::too_many()),
        Some(Fault::AccountInvalid) => return refused(Problem::account()),
        Some(Fault::Twice) => drop(execute(request, &request_id, None, shared).await),
        _ => {}
    }
    let delay = if let Some(Fault::Delay(delay)) = fault { Some(delay) } else { None };
    let mut answer = execute(request, &request_id, delay, shared).await;
    if fault == Some(Fault::Held) {
        shared.held.executed.notify_one();
        shared.held.released.notified().await;
    }
    if fault == Some(Fault::ErrorAfter) && !answer.is_replayed {
        answer = api::answer(Err(Problem::internal()));
        shared.account.lock().unwrap().keep(request, Some(answer.clone()));
    }
    (Some(answer), request_id)
}

async fn execute(request: &Request, request_id: &str, delay: Option<Duration>, shared: &Shared) -> Answer {
    let begun = shared.account.lock().unwrap().begin(request);
    if let Begun::Answered(answer) = begun {
        return answer;
    }
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    shared.account.lock().unwrap().execute(request, request_id)
}

/// Returns the response of a session's page: a form for a card number, or the redirect after the form was
/// submitted.
fn page(shared: &Shared, session_id: &str, request: &Request) -> (u16, String, String) {
    let html = "content-type: text/html\r\n".to_owned();
    let mut account = shared.account.lock().unwrap();
    let Ok(session) = account.state.find("checkout.session", session_id, None).cloned() else {
        return (404, html, "<h1>This page does not exist.</h1>".to_owned());
    };
    let location = |name: &str| {
        let url = session[name].as_str().unwrap().replace("{CHECKOUT_SESSION_ID}", session_id);
        format!("location: {url}\r\n")
    };
    if request.method != "POST" {
        let amount = &session["amount_total"];
        let form = "<form method=post><input name=card><button>Pay</button></form>";
        let back = session["cancel_url"].as_str().unwrap();
        return (200, html, format!("<h1>{amount}</h1>{form}<a href=\"{back}\">Back</a>"));
    }
    let params = Params::parse(&request.fields);
    match account.state.visit(session_id, &Card::numbered(params.text("card").unwrap_or_default())) {
        Ok(()) => (303, location("success_url"), String::new()),
        Err(problem) => (problem.status, html, format!("<p>{}", problem.error["message"].as_str().unwrap())),
    }
}
