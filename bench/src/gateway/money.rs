//! The cost of money in a plain call. Money can't be switched off, so the service's own reservations and
//! captures are measured on its service listener in the same rounds.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::figures::Output;
use super::load::{self, Load};
use super::stub::Form;
use super::target::Target;
use crate::report::{median, shown};
use crate::table::call::{self, Call, Pool};

/// The service listener and a key.
pub struct Books {
    pub process: u32,
    pub service: SocketAddr,
    pub token: String,
    pub key: String,
    pub key_id: String,
}

/// The processor times of each round, in microseconds.
#[derive(Default)]
pub struct Steps {
    plain: Vec<f64>,
    deciding: Vec<f64>,
    reserving: Vec<f64>,
    reporting: Vec<f64>,
    capturing: Vec<f64>,
}

impl Books {
    fn ask(&self, path: &str, body: &Value) -> Call {
        Call::to(self.service, "POST", path).bearer(&self.token).body(body)
    }

    fn authorize(&self, reserve: bool) -> Call {
        let body = json!({"credential": self.key, "client_address": "203.0.113.7", "operation": "chat",
            "model": "svc-1", "max_tokens": 64, "estimated_prompt_tokens": 120, "reserve": reserve});
        self.ask("/service/v1/authorize", &body).expect("\"allowed\":true")
    }

    /// Returns the body of a report of usage of this model.
    fn report(&self, model: &str) -> Result<Value, String> {
        let mut event = crate::money::event(&self.key_id, "e{number}", &crate::money::now()?);
        if let Some(event) = event.as_object_mut() {
            event.insert("model".to_owned(), json!(model));
            event.insert("reservation_id".to_owned(), json!("{text}"));
        }
        Ok(json!({ "events": [event] }))
    }
}

impl Steps {
    /// Measures each step once.
    pub async fn round(&mut self, books: &Books, plain: &Target, load: Load) -> Result<(), String> {
        let calls = crate::client::Load {
            connections: load.connections,
            length: load.length,
            never_sleep: load.never_sleep,
        };
        let reserved = Pool::default();
        let usage = "/service/v1/usage";
        let reserve = books.authorize(true).keep("\"reservation\":{\"id\":\"", &reserved);
        // This model doesn't exist, so the event is read and refused.
        let refuse = books.ask(usage, &books.report("none")?).expect("\"refused\"");
        let capture = books.ask(usage, &books.report("svc-1")?).each(&reserved).expect("\"accepted\"");
        let steps = [
            (&mut self.deciding, books.authorize(false)),
            (&mut self.reserving, reserve),
            (&mut self.reporting, refuse),
            // Each event captures a reservation of the previous step.
            (&mut self.capturing, capture),
        ];
        for (times, call) in steps {
            times.extend(call::load(&call, books.process, calls).await?.server_us);
        }
        self.plain.extend(load::closed(plain, Form::Plain, load).await?.cpu_us);
        Ok(())
    }

    /// Prints the processor time of each step, and that of a plain call without money.
    pub fn print(&self, output: Output) {
        output.group("The money of a plain call", &["CPU µs".to_owned()]);
        let all = [&self.plain, &self.deciding, &self.reserving, &self.reporting, &self.capturing];
        let names =
            ["a plain call", "authorize", "authorize, reserving", "usage, refused", "usage, capturing"];
        for (name, times) in names.into_iter().zip(all) {
            output.line(&[name.to_owned(), shown(median(times.clone()), 1, "")]);
        }
        let [plain, deciding, reserving, reporting, capturing] = all.map(|times| median(times.clone()));
        let without = || Some(plain? - (reserving? - deciding?) - (capturing? - reporting?));
        output.line(&["a plain call without money".to_owned(), shown(without(), 1, "")]);
    }
}
