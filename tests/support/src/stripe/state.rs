//! The objects of the account.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tollkeeper::clock::Clock;

use super::cards::{Card, Outcome};
use super::params::Params;
use super::problem::Problem;
use super::refunds::RefundOutcome;
use crate::chance::Chance;

/// The version of the API whose objects are used.
pub const API_VERSION: &str = "2026-10-28.endive";

/// The state of the account.
pub struct State {
    pub clock: Clock,
    pub chance: Chance,
    /// The URL of the server, for the pages of checkout sessions.
    pub url: String,
    pub livemode: bool,
    /// The tax rate in millionths.
    pub tax_ppm: i64,
    /// The payment intents of the recorded taxes, by the id of the calculation.
    pub recorded_taxes: BTreeMap<String, String>,
    pub objects: HashMap<String, Value>,
    /// The ids of all objects, in order of creation.
    pub order: Vec<String>,
    /// The cards behind the payment methods, by the id of the payment method.
    pub cards: HashMap<String, Card>,
    /// The fields of the objects that checkout sessions will create, by the id of the session.
    pub plans: HashMap<String, Value>,
    /// The outcome of new refunds.
    pub refund_outcome: RefundOutcome,
    /// The states of the account's capabilities.
    pub capabilities: Value,
    /// The prefixes of the paths that the key may not use.
    pub forbidden: Vec<String>,
    /// The ids of events that haven't been delivered yet.
    pub undelivered: Vec<String>,
    /// The id and the idempotency key of the request that is being executed.
    pub request: Option<(String, Option<String>)>,
    templates: BTreeMap<String, Value>,
    count: u64,
}

impl State {
    pub fn new(clock: Clock, url: String, seed: u64) -> Self {
        let templates = serde_json::from_str(include_str!("../../../stripe/objects.json")).unwrap();
        let mut state = Self {
            clock,
            chance: Chance::new(seed),
            url,
            livemode: false,
            tax_ppm: 200_000,
            recorded_taxes: BTreeMap::new(),
            objects: HashMap::new(),
            order: Vec::new(),
            cards: HashMap::new(),
            plans: HashMap::new(),
            refund_outcome: RefundOutcome::Succeeds,
            capabilities: json!({"card_payments": "active", "transfers": "active"}),
            forbidden: Vec::new(),
            undelivered: Vec::new(),
            request: None,
            templates,
            count: 0,
        };
        state.add_webhook();
        state
    }

    pub fn now(&self) -> i64 {
        self.clock.now().unix_seconds()
    }

    pub fn new_id(&mut self, prefix: &str) -> String {
        const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        self.count += 1;
        let random: String = (0..14).map(|_| char::from(LETTERS[self.chance.below(LETTERS.len())])).collect();
        format!("{prefix}_1Fake{:05}{random}", self.count)
    }

    /// Returns a new object of a kind. The caller has to add it with [`Self::put`].
    pub fn template(&self, kind: &str) -> Value {
        let mut object = self.templates[kind].clone();
        for (name, value) in [("livemode", json!(self.livemode)), ("created", json!(self.now()))] {
            if object.get(name).is_some() {
                object[name] = value;
            }
        }
        object
    }

    /// Adds an object, or replaces the object with the same id.
    pub fn put(&mut self, object: Value) {
        let id = object["id"].as_str().unwrap().to_owned();
        if self.objects.insert(id.clone(), object).is_none() {
            self.order.push(id);
        }
    }

    /// Returns an object of this kind. `param` is the field that named the object, or `None` if the path did.
    pub fn find(&self, kind: &str, id: &str, param: Option<&str>) -> Result<&Value, Problem> {
        let object = self.objects.get(id).filter(|object| object["object"] == kind);
        object.ok_or_else(|| Problem::missing(kind, id, param))
    }

    pub fn get(&self, id: &str) -> &Value {
        self.objects.get(id).unwrap_or_else(|| panic!("unknown id {id}"))
    }

    pub fn edit(&mut self, id: &str, change: impl FnOnce(&mut Value)) {
        change(self.objects.get_mut(id).unwrap_or_else(|| panic!("unknown id {id}")));
    }

    /// Returns the objects of a kind, oldest first.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.order.iter().map(|id| &self.objects[id]).filter(|object| object["object"] == kind).collect()
    }

    /// Returns the outcome of charging a payment method while the customer is away.
    pub fn outcome_of(&self, payment_method: &str) -> Outcome {
        self.cards.get(payment_method).map_or(Outcome::Succeeds, |card| card.later)
    }

    /// Adds an event with the current state of an object.
    pub fn emit(&mut self, kind: &str, object_id: &str) {
        let id = self.new_id("evt");
        let request = self.request.as_ref().map(|(id, key)| json!({"id": id, "idempotency_key": key}));
        let event = json!({
            "id": id,
            "object": "event",
            "api_version": API_VERSION,
            "created": self.now(),
            "data": {"object": self.get(object_id)},
            "livemode": self.livemode,
            "pending_webhooks": 1,
            "request": request.unwrap_or(json!({"id": null, "idempotency_key": null})),
            "type": kind,
        });
        self.put(event);
        if self.is_sent(kind) {
            self.undelivered.push(id);
        }
    }

    /// Adds a change to the account's balance that belongs to an object, and returns the id of the change.
    pub fn move_balance(
        &mut self,
        kind: (&str, &str),
        amount: i64,
        fee: i64,
        currency: &str,
        source: &str,
    ) -> String {
        let mut moved = self.template("balance_transaction");
        let id = self.new_id("txn");
        moved["id"] = id.clone().into();
        moved["amount"] = amount.into();
        moved["fee"] = fee.into();
        moved["net"] = (amount - fee).into();
        moved["currency"] = currency.into();
        moved["available_on"] = self.now().into();
        moved["type"] = kind.0.into();
        moved["reporting_category"] = kind.1.into();
        moved["source"] = source.into();
        self.put(moved);
        id
    }

    /// Returns a page of a list, newest first, with the objects that fulfill a condition.
    pub fn page(
        &self,
        kind: &str,
        url: &str,
        params: &Params,
        keep: impl Fn(&Value) -> bool,
    ) -> Result<Value, Problem> {
        let limit = params.number("limit")?.unwrap_or(10);
        if !(1..=100).contains(&limit) {
            return Err(Problem::invalid("limit", "", "This value must be between 1 and 100."));
        }
        let after = params.text("starting_after").map(str::to_owned);
        if let Some(after) = &after {
            self.find(kind, after, Some("starting_after"))?;
        }
        let (gte, gt) = (params.number("created[gte]")?, params.number("created[gt]")?);
        let (lte, lt) = (params.number("created[lte]")?, params.number("created[lt]")?);
        params.list("expand");
        params.finish()?;
        let is_in = |object: &Value| {
            let at = object["created"].as_i64().unwrap();
            gte.is_none_or(|from| at >= from)
                && gt.is_none_or(|from| at > from)
                && lte.is_none_or(|until| at <= until)
                && lt.is_none_or(|until| at < until)
        };
        let newest = self.all(kind).into_iter().rev();
        let mut rest =
            newest.skip_while(|object| after.as_ref().is_some_and(|after| object["id"] != **after));
        if after.is_some() {
            rest.next();
        }
        let mut data: Vec<Value> = rest.filter(|object| is_in(object) && keep(object)).cloned().collect();
        let limit = usize::try_from(limit).unwrap();
        let has_more = data.len() > limit;
        data.truncate(limit);
        Ok(json!({"object": "list", "data": data, "has_more": has_more, "url": url}))
    }

    /// Replaces the ids at these paths with the objects.
    pub fn expand(&self, answer: &mut Value, paths: &[&str]) -> Result<(), Problem> {
        for path in paths {
            let parts: Vec<_> = path.split('.').collect();
            if parts.len() > 4 || !self.expand_path(answer, &parts) {
                let why = format!("This property cannot be expanded ({path}).");
                return Err(Problem::invalid("expand", "", &why));
            }
        }
        Ok(())
    }

    /// Replaces the id at this path with the object. Returns `false` if a property of the path doesn't exist.
    fn expand_path(&self, value: &mut Value, path: &[&str]) -> bool {
        let Some((name, rest)) = path.split_first() else { return true };
        if let Value::Array(items) = value {
            return items.iter_mut().all(|item| self.expand_path(item, path));
        }
        let Some(inner) = value.get_mut(name) else { return false };
        if let Some(object) = inner.as_str().and_then(|id| self.objects.get(id)) {
            *inner = object.clone();
        }
        match inner {
            Value::Null => true,
            Value::Object(_) | Value::Array(_) => self.expand_path(inner, rest),
            _ => false,
        }
    }
}
