//! The load on the service listener: connections with one request in flight each, each time with a different
//! request.

use std::fmt::{Display, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{BATCH, Tenant, now};
use crate::client::{Connection, Target};

/// The kind of the repeated request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// A thousand events per request.
    Batches,
    /// A thousand events per request, each with parts.
    BatchesWithParts,
    /// A single event per request.
    Singles,
    /// A reservation, and the event that captures it.
    Pairs,
}

/// Runs the load, and returns events or pairs per second.
pub async fn drive(
    tenant: &Tenant,
    job: Job,
    connections: u16,
    length: Duration,
    round: u64,
) -> Result<f64, String> {
    let begin = Instant::now();
    let (from, until) = (begin + length / 5, begin + length);
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        let worker = Worker::new(tenant.clone(), job, round, number);
        tasks.spawn(worker.run(from, until));
    }
    let mut count: u64 = 0;
    while let Some(outcome) = tasks.join_next().await {
        count += outcome.map_err(|error| error.to_string())??;
    }
    let count = u32::try_from(count).map_or(f64::INFINITY, f64::from);
    Ok(count / (until - from).as_secs_f64())
}

struct Worker {
    tenant: Tenant,
    job: Job,
    /// A prefix of ids that is unique to this worker, round and run.
    prefix: String,
    number: u64,
}

impl Worker {
    fn new(tenant: Tenant, job: Job, round: u64, number: u16) -> Self {
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self { tenant, job, prefix: format!("{run}-{job:?}-{round}-{number}"), number: 0 }
    }

    async fn run(mut self, from: Instant, until: Instant) -> Result<u64, String> {
        let first = Target::post(self.tenant.service, "/healthz", None, &Value::Null, "");
        let mut connection = Connection::connect(&first).await?;
        let mut count = 0;
        loop {
            let each = match self.job {
                Job::Batches | Job::BatchesWithParts => self.report(&mut connection, BATCH, None).await?,
                Job::Singles => self.report(&mut connection, 1, None).await?,
                Job::Pairs => {
                    let reservation = self.reserve(&mut connection).await?;
                    self.report(&mut connection, 1, Some(&reservation)).await?
                }
            };
            let now = Instant::now();
            if now >= until {
                return Ok(count);
            }
            if now >= from {
                count += each;
            }
        }
    }

    async fn report(
        &mut self,
        connection: &mut Connection,
        events: u64,
        reservation: Option<&str>,
    ) -> Result<u64, String> {
        // Written as text: building a tree for each event would make the client slower than the server that
        // reads it.
        let (time, mut body) = (now()?, String::from("{\"events\":["));
        for number in 0..events {
            self.number += 1;
            let at = usize::try_from(self.number).unwrap_or(0) % self.tenant.keys.len();
            let (key, _) = self.tenant.keys.get(at).ok_or("no keys")?;
            let comma = if number == 0 { "" } else { "," };
            let event = format_args!(
                "{comma}{{\"id\":\"{}-{}\",\"source\":\"bench\",\"time\":\"{time}\",\"api_key_id\":\"{key}\",\
                 \"model\":\"svc-1\",\"kind\":\"chat\",\"prompt_tokens\":120,\"completion_tokens\":240",
                self.prefix, self.number
            );
            // Writing to a string never fails.
            body.write_fmt(event).ok();
            if let Some(reservation) = reservation {
                write!(body, ",\"reservation_id\":\"{reservation}\"").ok();
            }
            if self.job == Job::BatchesWithParts {
                body.push_str(",\"parts\":{\"cache_write_5m\":20,\"reasoning\":100}");
            }
            body.push('}');
        }
        body.push_str("]}");
        let answer = self.post(connection, "/service/v1/usage", &body).await?;
        if !answer.contains("\"accepted\"") || answer.contains("\"refused\"") {
            return Err(format!("an event doesn't count: {answer}"));
        }
        Ok(events)
    }

    async fn reserve(&mut self, connection: &mut Connection) -> Result<String, String> {
        let at = usize::try_from(self.number).unwrap_or(0) % self.tenant.keys.len();
        let (_, key) = self.tenant.keys.get(at).ok_or("no keys")?;
        let question = json!({"credential": key, "operation": "chat", "model": "svc-1", "max_tokens": 256,
                              "estimated_prompt_tokens": 120});
        let answer = self.post(connection, "/service/v1/authorize", &question).await?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        let id = answer.pointer("/reservation/id").and_then(Value::as_str);
        id.map(str::to_owned).ok_or_else(|| format!("no reservation: {answer}"))
    }

    async fn post(
        &self,
        connection: &mut Connection,
        path: &str,
        body: &impl Display,
    ) -> Result<String, String> {
        let target = Target::post(self.tenant.service, path, Some(&self.tenant.token), body, "");
        connection.send(target).await
    }
}
