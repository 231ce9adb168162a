//! The steps of users, programs and inference servers, chosen at random by weight.

use serde_json::{Value, json};
use tollkeeper::random::Random;

use super::worker::{Ask, Worker};
use crate::money;

/// The number of events in one batch.
const BATCH: u32 = 100;

/// A unit of work: one request or several.
#[derive(Clone, Copy)]
pub enum Step {
    Models,
    OneModel,
    Authorize,
    Call,
    FailedCall,
    Batch,
    Reads,
    Reports,
    Key,
    Session,
    Settings,
    Refused,
    Forgotten,
}

/// The weight of each step. They add up to 1,000.
const WEIGHTS: [(Step, u16); 13] = [
    (Step::Models, 200),
    (Step::OneModel, 30),
    (Step::Authorize, 200),
    (Step::Call, 250),
    (Step::FailedCall, 30),
    (Step::Batch, 20),
    (Step::Reads, 150),
    (Step::Reports, 20),
    (Step::Key, 30),
    (Step::Session, 8),
    (Step::Settings, 20),
    (Step::Refused, 40),
    (Step::Forgotten, 2),
];

impl Step {
    /// Chooses a random step.
    pub fn draw(random: &Random) -> Self {
        let total: u16 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = u16::from_be_bytes(random.bytes()) % total.max(1);
        for (step, weight) in WEIGHTS {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return step,
            }
        }
        Self::Models
    }

    /// Runs the step.
    pub async fn run(self, worker: &mut Worker) -> Result<(), String> {
        match self {
            Self::Models => {
                let (_, key) = worker.key()?;
                worker.ask(Ask::public("models", "GET", "/v1/models").by(Some(key))).await?;
            }
            Self::OneModel => {
                let (_, key) = worker.key()?;
                worker.ask(Ask::public("one model", "GET", "/v1/models/svc-1").by(Some(key))).await?;
            }
            Self::Authorize => {
                let (_, key) = worker.key()?;
                authorize(worker, &key, false).await?;
            }
            Self::Call => call(worker).await?,
            Self::FailedCall => failed_call(worker).await?,
            Self::Batch => batch(worker).await?,
            Self::Reads => reads(worker).await?,
            Self::Reports => reports(worker).await?,
            Self::Key => key(worker).await?,
            Self::Session => session(worker).await?,
            Self::Settings => settings(worker).await?,
            Self::Refused => refused(worker).await?,
            Self::Forgotten => {
                let body = json!({"email": worker.place.email});
                worker.ask(Ask::public("forgotten", "POST", "/v1/auth/forgot-password").with(body)).await?;
            }
        }
        Ok(())
    }
}

/// Logs in, and returns the access token.
pub async fn log_in(worker: &mut Worker) -> Result<String, String> {
    let answer = worker.ask(worker.login()).await?;
    let token = answer.pointer("/data/access_token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| format!("no login: {answer}"))
}

/// Authorizes a model call, and returns the reservation if `reserve` is set.
async fn authorize(worker: &mut Worker, key: &str, reserve: bool) -> Result<Option<String>, String> {
    let body = json!({"credential": key, "client_address": "203.0.113.7", "operation": "chat", "model": "svc-1",
                      "max_tokens": 256, "estimated_prompt_tokens": 120, "reserve": reserve});
    let step = if reserve { "reserve" } else { "authorize" };
    let answer = worker.ask(Ask::service(worker, step, "POST", "/service/v1/authorize").with(body)).await?;
    let reservation = answer.pointer("/reservation/id").and_then(Value::as_str).map(str::to_owned);
    let right = answer.pointer("/allowed") == Some(&Value::Bool(true)) && reservation.is_some() == reserve;
    if !right && !answer.is_null() {
        worker.wrong(step, &answer)?;
    }
    Ok(reservation)
}

/// Makes a successful call, which is reserved, sometimes extended, and captured.
async fn call(worker: &mut Worker) -> Result<(), String> {
    let (id, key) = worker.key()?;
    let Some(reservation) = authorize(worker, &key, true).await? else { return Ok(()) };
    let event = worker.unique();
    if event.ends_with('7') {
        let path = format!("/service/v1/reservations/{reservation}/extend");
        worker.ask(Ask::service(worker, "extend", "POST", path)).await?;
    }
    let mut event = money::event(&id, &event, &money::now()?);
    if let Some(fields) = event.as_object_mut() {
        fields.insert("reservation_id".to_owned(), json!(reservation));
    }
    report(worker, "capture", json!({"events": [event]})).await
}

/// Makes a failed call, whose reservation is released.
async fn failed_call(worker: &mut Worker) -> Result<(), String> {
    let (_, key) = worker.key()?;
    let Some(reservation) = authorize(worker, &key, true).await? else { return Ok(()) };
    let path = format!("/service/v1/reservations/{reservation}");
    worker.ask(Ask::service(worker, "release", "DELETE", path)).await?;
    Ok(())
}

async fn batch(worker: &mut Worker) -> Result<(), String> {
    let (time, mut events) = (money::now()?, Vec::new());
    for _ in 0..BATCH {
        let (id, _) = worker.key()?;
        events.push(money::event(&id, &worker.unique(), &time));
    }
    report(worker, "batch", json!({"events": events})).await
}

async fn report(worker: &mut Worker, step: &'static str, body: Value) -> Result<(), String> {
    let answer = worker.ask(Ask::service(worker, step, "POST", "/service/v1/usage").with(body)).await?;
    let results = answer.get("results").and_then(Value::as_array);
    let accepted = |result: &Value| result.get("status").and_then(Value::as_str) == Some("accepted");
    if !answer.is_null() && !results.is_some_and(|results| results.iter().all(accepted)) {
        worker.wrong(step, &answer)?;
    }
    Ok(())
}

/// Reads one of the lists that users view.
async fn reads(worker: &mut Worker) -> Result<(), String> {
    let (organization, project) = (worker.place.organization.clone(), worker.place.project.clone());
    let (key, _) = worker.key()?;
    let pages = [
        ("me", "/v1/auth/me".to_owned()),
        ("list", "/v1/organizations".to_owned()),
        ("organization", organization.clone()),
        ("list", format!("{organization}/members")),
        ("list", format!("{organization}/projects")),
        ("project", project.clone()),
        ("list", format!("{project}/members")),
        ("list", format!("{project}/api-keys")),
        ("key", format!("{project}/api-keys/{key}")),
        ("list", format!("{organization}/billing/invoices")),
        ("list", format!("{organization}/billing/credits")),
        ("list", format!("{organization}/billing/movements")),
    ];
    let [byte] = Random::system().bytes::<1>();
    let at = usize::from(byte) % pages.len();
    let page = pages.into_iter().nth(at);
    let (step, path) = page.ok_or("no page")?;
    worker.ask(Ask::public(step, "GET", path).by(worker.token())).await?;
    Ok(())
}

async fn reports(worker: &mut Worker) -> Result<(), String> {
    let (organization, project) = (worker.place.organization.clone(), worker.place.project.clone());
    let paths = [
        format!("{organization}/billing/summary"),
        format!("{organization}/billing/usage?group_by=month,api_key"),
        format!("{project}/usage"),
    ];
    for path in paths {
        worker.ask(Ask::public("report", "GET", path).by(worker.token())).await?;
    }
    Ok(())
}

/// Tests the whole life of a key: after a rotation, both secrets work, and after the key was deleted, neither
/// is accepted.
async fn key(worker: &mut Worker) -> Result<(), String> {
    let keys = format!("{}/api-keys", worker.place.project);
    let body = json!({"name": worker.unique(), "restrictions": {"rate_limit": 1000, "allowed_ips": ["203.0.113.0/24"]}});
    let made = worker.ask(Ask::public("key create", "POST", &*keys).by(worker.token()).with(body)).await?;
    let field = |answer: &Value, name: &str| {
        answer.get("data").and_then(|data| data.get(name)).and_then(Value::as_str).map(str::to_owned)
    };
    let (Some(id), Some(first)) = (field(&made, "id"), field(&made, "key")) else { return Ok(()) };
    authorize(worker, &first, false).await?;
    let path = format!("{keys}/{id}");
    let rotate = Ask::public("key rotate", "POST", format!("{path}/rotate")).by(worker.token());
    let second = field(&worker.ask(rotate).await?, "key");
    authorize(worker, &first, false).await?;
    if let Some(second) = &second {
        authorize(worker, second, false).await?;
    }
    let change = Ask::public("key update", "PUT", &*path).by(worker.token());
    worker.ask(change.with(json!({"restrictions": {"rate_limit": 2000}}))).await?;
    worker.ask(Ask::public("key delete", "DELETE", path).by(worker.token())).await?;
    let models = Ask::public("key ended", "GET", "/v1/models").by(second.or(Some(first)));
    worker.ask(models.refused(401)).await?;
    Ok(())
}

/// Logs in, reads, renews the token and logs out. The ended session must be refused afterwards.
async fn session(worker: &mut Worker) -> Result<(), String> {
    let answer = worker.ask(worker.login()).await?;
    let token =
        |name: &str| answer.pointer(&format!("/data/{name}")).and_then(Value::as_str).map(str::to_owned);
    let (access, refresh) = (token("access_token"), token("refresh_token"));
    worker.ask(Ask::public("me", "GET", "/v1/auth/me").by(access.clone())).await?;
    worker.ask(Ask::public("refresh", "POST", "/v1/auth/refresh-token").by(refresh)).await?;
    worker.ask(Ask::public("logout", "POST", "/v1/auth/logout").by(access.clone())).await?;
    worker.ask(Ask::public("session ended", "GET", "/v1/auth/me").by(access).refused(401)).await?;
    Ok(())
}

async fn settings(worker: &mut Worker) -> Result<(), String> {
    let (path, text) = (worker.place.project.clone(), worker.unique());
    let change = Ask::public("project update", "PUT", path).by(worker.token());
    worker.ask(change.with(json!({"description": text}))).await?;
    Ok(())
}

/// Makes a call that must be refused.
async fn refused(worker: &mut Worker) -> Result<(), String> {
    let (_, key) = worker.key()?;
    let wrong = format!("tk_{}", "0".repeat(49));
    let asks = [
        Ask::public("wrong key", "GET", "/v1/models").by(Some(wrong)).refused(401),
        Ask::public("no model", "GET", "/v1/models/none").by(Some(key)).refused(404),
        Ask::public("no organization", "GET", "/v1/organizations/org_none").by(worker.token()).refused(404),
        Ask::public("no body", "POST", "/v1/organizations").by(worker.token()).with(json!({})).refused(400),
    ];
    let [byte] = Random::system().bytes::<1>();
    let at = usize::from(byte) % asks.len();
    if let Some(ask) = asks.into_iter().nth(at) {
        worker.ask(ask).await?;
    }
    Ok(())
}
