//! A connection of the soak test, which runs steps at an even rate and records their results and latencies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollkeeper::random::Random;

use super::steps::{self, Step};
use super::watch::Findings;
use crate::servers::Tollkeeper;
use crate::tenant::{self, PASSWORD};
use crate::wire::{Wire, request};

/// The number of permanent keys of an organization.
const KEYS: u32 = 5;
/// The number of requests after which a connection is replaced.
const STEPS_PER_CONNECTION: u64 = 200;
/// The interval at which the access token is renewed. It is valid for an hour.
const RENEW_EVERY: Duration = Duration::from_secs(600);

/// An organization with a project and keys, and its addresses.
pub struct Place {
    pub public: SocketAddr,
    pub service: SocketAddr,
    pub service_token: String,
    pub email: String,
    pub organization: String,
    pub project: String,
    /// The ids and secrets of the keys.
    pub keys: Vec<(String, String)>,
}

impl Place {
    /// Creates the objects.
    pub async fn prepare(service: &Tollkeeper, number: u16) -> Result<Self, String> {
        let (public, name) = (service.public, format!("soak{number}-{}", tenant::new_name()?));
        let token = tenant::person(public, &name).await?;
        let organization =
            tenant::post(public, "/v1/organizations", Some(&token), &json!({"name": name})).await?;
        let organization = format!("/v1/organizations/{}", tenant::text(&organization, "id")?);
        let projects = format!("{organization}/projects");
        let project = tenant::post(public, &projects, Some(&token), &json!({"name": "soaked"})).await?;
        let project = format!("{projects}/{}", tenant::text(&project, "id")?);
        let mut keys = Vec::new();
        for number in 0..KEYS {
            let body = json!({"name": format!("stays {number}")});
            let key = tenant::post(public, &format!("{project}/api-keys"), Some(&token), &body).await?;
            keys.push((tenant::text(&key, "id")?, tenant::text(&key, "key")?));
        }
        Ok(Self {
            public,
            service: service.service,
            service_token: service.token.clone(),
            email: format!("{name}@example.com"),
            organization,
            project,
            keys,
        })
    }
}

/// A request of a step, and the expected status.
pub struct Ask {
    pub step: &'static str,
    pub method: &'static str,
    pub path: String,
    pub bearer: Option<String>,
    pub body: Option<Value>,
    pub status: u16,
    /// Whether the request is sent to the service listener.
    pub service: bool,
}

/// A connection to each listener.
pub struct Worker {
    pub place: Arc<Place>,
    found: Arc<Findings>,
    random: Random,
    /// A prefix that is unique in this run.
    prefix: String,
    number: u64,
    token: String,
    renewed_at: Option<Instant>,
    public: Option<Wire>,
    service: Option<Wire>,
    due: Instant,
    between: Duration,
}

impl Worker {
    pub fn new(place: Arc<Place>, found: Arc<Findings>, number: u16) -> Self {
        Self {
            place,
            found,
            random: Random::system(),
            prefix: format!("soak-{number}"),
            number: 0,
            token: String::new(),
            renewed_at: None,
            public: None,
            service: None,
            due: Instant::now(),
            between: Duration::ZERO,
        }
    }

    /// Runs until it is dropped. An error is caused by this program or the network.
    pub async fn run(mut self, between: Duration, delay: Duration) -> Result<(), String> {
        (self.between, self.due) = (between, Instant::now() + delay);
        loop {
            if self.renewed_at.is_none_or(|at| at.elapsed() >= RENEW_EVERY) {
                self.token = steps::log_in(&mut self).await?;
                self.renewed_at = Some(Instant::now());
            }
            let step = Step::draw(&self.random);
            step.run(&mut self).await?;
        }
    }

    /// Returns the access token.
    pub fn token(&self) -> Option<String> {
        Some(self.token.clone())
    }

    /// Returns a unique text.
    pub fn unique(&mut self) -> String {
        self.number += 1;
        format!("{}-{}", self.prefix, self.number)
    }

    /// Returns one of the permanent keys.
    pub fn key(&self) -> Result<(String, String), String> {
        let [byte] = self.random.bytes::<1>();
        let keys = &self.place.keys;
        keys.get(usize::from(byte) % keys.len().max(1)).cloned().ok_or_else(|| "no keys".to_owned())
    }

    /// Sends the request when it is due. Returns the answer's body, or null if the answer was wrong.
    pub async fn ask(&mut self, ask: Ask) -> Result<Value, String> {
        self.number += 1;
        if self.number.is_multiple_of(STEPS_PER_CONNECTION) {
            (self.public, self.service) = (None, None);
        }
        tokio::time::sleep_until(self.due.into()).await;
        let late = self.due.elapsed();
        // The timer wakes up to a millisecond late, which isn't the server's fault.
        let sent = if late < Duration::from_millis(2) { Instant::now() } else { self.due };
        self.due += self.between;
        let address = if ask.service { self.place.service } else { self.place.public };
        let bytes = request(ask.method, &ask.path, address, ask.bearer.as_deref(), ask.body.as_ref());
        let slot = if ask.service { &mut self.service } else { &mut self.public };
        let wire = match slot {
            Some(wire) => wire,
            None => slot.insert(Wire::open(address).await?),
        };
        let answer = match wire.ask(&bytes).await {
            Ok(answer) => answer,
            Err(error) => {
                *slot = None;
                self.found.wrong(format!("{}: {error}", ask.step))?;
                return Ok(Value::Null);
            }
        };
        let took_us = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
        self.found.answered(ask.step, took_us)?;
        if answer.status != ask.status {
            let text = answer.text();
            self.found.wrong(format!("{}: {} instead of {}: {text}", ask.step, answer.status, ask.status))?;
            return Ok(Value::Null);
        }
        Ok(answer.json().unwrap_or_default())
    }

    /// Records a wrong answer.
    pub fn wrong(&self, step: &str, answer: &Value) -> Result<(), String> {
        self.found.wrong(format!("{step}: {answer}"))
    }

    /// Returns a request of `POST /v1/auth/login`.
    pub fn login(&self) -> Ask {
        let body = json!({"email": self.place.email, "password": PASSWORD});
        Ask::public("login", "POST", "/v1/auth/login").with(body)
    }
}

impl Ask {
    /// Returns a request to the public listener without credentials.
    pub fn public(step: &'static str, method: &'static str, path: impl Into<String>) -> Self {
        Self { step, method, path: path.into(), bearer: None, body: None, status: 200, service: false }
    }

    /// Returns a request to the service listener.
    pub fn service(
        worker: &Worker,
        step: &'static str,
        method: &'static str,
        path: impl Into<String>,
    ) -> Self {
        let bearer = Some(worker.place.service_token.clone());
        Self { bearer, service: true, ..Self::public(step, method, path) }
    }

    /// Adds a bearer token.
    pub fn by(self, bearer: Option<String>) -> Self {
        Self { bearer, ..self }
    }

    /// Adds a body.
    pub fn with(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Expects this status.
    pub fn refused(self, status: u16) -> Self {
        Self { status, ..self }
    }
}
