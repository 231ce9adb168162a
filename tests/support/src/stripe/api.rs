//! The operations of the API, and the idempotency of POST requests.

use std::collections::HashMap;

use serde_json::Value;

use super::SECRET_KEY;
use super::params::Params;
use super::problem::Problem;
use super::state::State;

/// The time for which the answer for an idempotency key is kept, in seconds.
const KEPT_SECONDS: i64 = 24 * 3_600;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The encoded fields of the body or of the query.
    pub fields: String,
    /// The headers, by lower-case name.
    pub headers: HashMap<String, String>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub is_replayed: bool,
}

/// The state of an idempotency key.
struct Kept {
    path: String,
    fields: Vec<(String, String)>,
    at: i64,
    /// The answer, or `None` while the request is in progress.
    answer: Option<Answer>,
}

/// The account with its idempotency keys.
pub struct Account {
    pub state: State,
    kept: HashMap<String, Kept>,
    requests: u64,
}

/// The result of starting a request.
pub enum Begun {
    /// The request has to be executed.
    New,
    /// The request was already answered.
    Answered(Answer),
}

impl Account {
    pub fn new(state: State) -> Self {
        Self { state, kept: HashMap::new(), requests: 0 }
    }

    /// Returns the id of the next request.
    pub fn next_request_id(&mut self) -> String {
        self.requests += 1;
        format!("req_fake{:05}", self.requests)
    }

    /// Checks the secret key and the idempotency key, and marks the latter as in use.
    pub fn begin(&mut self, request: &Request) -> Begun {
        let bearer = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        if bearer != Some(SECRET_KEY) {
            return Begun::Answered(answer(Err(Problem::unauthorized(bearer.unwrap_or_default()))));
        }
        let Some(key) = request.key() else { return Begun::New };
        let (now, fields) = (self.state.now(), request.sorted_fields());
        self.kept.retain(|_, kept| kept.answer.is_none() || now - kept.at < KEPT_SECONDS);
        match self.kept.get(key) {
            Some(kept) if kept.path != request.path || kept.fields != fields => {
                Begun::Answered(answer(Err(Problem::other_body())))
            }
            Some(Kept { answer: Some(kept), .. }) => {
                Begun::Answered(Answer { is_replayed: true, ..kept.clone() })
            }
            Some(_) => Begun::Answered(answer(Err(Problem::in_progress()))),
            None => {
                let kept = Kept { path: request.path.clone(), fields, at: now, answer: None };
                self.kept.insert(key.to_owned(), kept);
                Begun::New
            }
        }
    }

    /// Executes a request that was started, and keeps the answer.
    pub fn execute(&mut self, request: &Request, request_id: &str) -> Answer {
        self.state.expire_due();
        self.state.request = Some((request_id.to_owned(), request.key().map(str::to_owned)));
        let params = Params::parse(&request.fields);
        let result =
            operate(&mut self.state, &request.method, &request.path, &params).and_then(|mut object| {
                self.state.expand(&mut object, &params.list("expand"))?;
                Ok(object)
            });
        self.state.request = None;
        let is_kept = result.as_ref().err().is_none_or(|problem| problem.is_kept);
        let answer = answer(result);
        self.keep(request, is_kept.then(|| answer.clone()));
        answer
    }

    /// Keeps the answer for the idempotency key of a request, or releases the key if `answer` is `None`.
    pub fn keep(&mut self, request: &Request, answer: Option<Answer>) {
        let Some(key) = request.key() else { return };
        match answer {
            None => drop(self.kept.remove(key)),
            answer => {
                if let Some(kept) = self.kept.get_mut(key) {
                    kept.answer = answer;
                }
            }
        }
    }

    /// Removes all idempotency keys, as Stripe does after a day.
    pub fn forget_keys(&mut self) {
        self.kept.clear();
    }
}

impl Request {
    pub fn key(&self) -> Option<&str> {
        self.headers.get("idempotency-key").filter(|_| self.method == "POST").map(String::as_str)
    }

    fn sorted_fields(&self) -> Vec<(String, String)> {
        let mut fields = Params::parse(&self.fields).fields().to_vec();
        fields.sort();
        fields
    }
}

pub fn answer(result: Result<Value, Problem>) -> Answer {
    match result {
        Ok(body) => Answer { status: 200, body, is_replayed: false },
        Err(problem) => Answer { status: problem.status, body: problem.body(), is_replayed: false },
    }
}

fn operate(state: &mut State, method: &str, path: &str, params: &Params) -> Result<Value, Problem> {
    let parts: Vec<_> = path.strip_prefix("/v1/").unwrap_or_default().split('/').collect();
    let read = |state: &State, kind: &str, id: &str| {
        params.list("expand");
        params.finish()?;
        state.find(kind, id, None).cloned()
    };
    if state.forbidden.iter().any(|forbidden| path.starts_with(forbidden.as_str())) {
        return Err(Problem::forbidden());
    }
    match (method, parts.as_slice()) {
        ("POST", ["customers"]) => state.create_customer(params),
        ("GET", ["customers", id]) => read(state, "customer", id),
        ("POST", ["customers", id]) => state.update_customer(id, params),
        ("DELETE", ["customers", id]) => state.delete_customer(id),
        ("GET", ["customers", id, "payment_methods"]) => state.payment_methods(id, params),
        ("POST", ["checkout", "sessions"]) => state.create_session(params),
        ("GET", ["checkout", "sessions"]) => state.sessions(params),
        ("GET", ["checkout", "sessions", id]) => read(state, "checkout.session", id),
        ("POST", ["checkout", "sessions", id, "expire"]) => state.expire_session(id, params),
        ("GET", ["invoices", id]) => read(state, "invoice", id),
        ("POST", ["tax", "calculations"]) => state.create_calculation(params),
        ("POST", ["payment_intents"]) => state.create_intent(params),
        ("GET", ["payment_intents"]) => state.intents(params),
        ("GET", ["payment_intents", id]) => read(state, "payment_intent", id),
        ("POST", ["payment_intents", id, "cancel"]) => state.cancel_intent(id, params),
        ("GET", ["charges", id]) => read(state, "charge", id),
        ("GET", ["setup_intents", id]) => read(state, "setup_intent", id),
        ("GET", ["payment_methods", id]) => read(state, "payment_method", id),
        ("POST", ["payment_methods", id, "detach"]) => {
            params.list("expand");
            params.finish()?;
            state.detach(id)
        }
        ("POST", ["refunds"]) => state.create_refund(params),
        ("GET", ["refunds"]) => state.refunds(params),
        ("GET", ["refunds", id]) => read(state, "refund", id),
        ("GET", ["disputes"]) => state.disputes(params),
        ("GET", ["disputes", id]) => read(state, "dispute", id),
        ("GET", ["account"]) => state.account(params),
        ("GET", ["webhook_endpoints"]) => state.webhook_endpoints(params),
        ("GET", ["events"]) => state.events(params),
        ("GET", ["events", id]) => read(state, "event", id),
        _ => Err(Problem::unknown_path(method, path)),
    }
}
