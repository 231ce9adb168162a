//! The money of a call: every call that reserved some ends here, exactly once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::count::Settled;
use crate::counters::{Counters, Outcome};
use crate::gateway::Gateway;
use billing::Billing;
use billing::books::Reservation;
use billing::usage::{Caller, Event, Outcome as EventOutcome, Usage};
use billing::{reservations, usage};
use catalog::{Kind, Model};
use kernel::clock::Time;
use kernel::error::Code;
use kernel::ids::ModelCallId;
use keys::model_callers::ModelCaller;

/// The source of the gateway's usage events.
pub const EVENT_SOURCE: &str = "gateway";

/// The wait after the first failed attempt to record the usage of a call. It doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Money that is reserved for a call. It is captured or released, and can't be both.
pub(crate) struct Hold {
    billing: Billing,
    counters: Arc<Counters>,
    call_id: ModelCallId,
    reserved_at: Time,
    reservation: Reservation,
    caller: Caller,
    model: Arc<str>,
    kind: Kind,
    is_settled: bool,
}

impl Hold {
    /// Returns the hold of a call whose reservation was made at `reserved_at`.
    pub(crate) fn new(
        gateway: &Gateway,
        call_id: ModelCallId,
        reserved_at: Time,
        reservation: Reservation,
        caller: &ModelCaller,
        model: &Model,
    ) -> Self {
        let caller = match caller.key() {
            Some(key) => Caller::ApiKey(key.id),
            None => Caller::user(caller.project_id(), caller.user_id()),
        };
        let (billing, counters) = (gateway.billing.clone(), Arc::clone(gateway.counters()));
        let kind = model.kind;
        let model = model.id.as_str().into();
        Self { billing, counters, call_id, reserved_at, reservation, caller, model, kind, is_settled: false }
    }

    /// Captures the price of what was used. It is durable when this returns: while the database fails, this
    /// tries again.
    pub(crate) async fn capture(self, used: Settled, outcome: Outcome) {
        self.counters.note_outcome(&self.model, outcome);
        self.counters.note_tokens(&self.model, used);
        let mut wait = FIRST_RETRY;
        loop {
            match usage::record(&self.billing, vec![self.event(used)]).await {
                Ok(outcomes) => return self.finish_capture(used, outcomes.first()).await,
                Err(error) => {
                    let (call_id, retry_in_ms) = (self.call_id, wait.as_millis());
                    tracing::warn!(%call_id, retry_in_ms, "the usage of a call can't be recorded yet: {error}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }

    async fn finish_capture(mut self, used: Settled, outcome: Option<&EventOutcome>) {
        self.is_settled = true;
        let why = match outcome {
            Some(EventOutcome::New | EventOutcome::Duplicate) => return,
            Some(EventOutcome::Refused(refusal)) => refusal.message.clone(),
            Some(EventOutcome::Conflict) => "another event has its id".to_owned(),
            None => "it has no outcome".to_owned(),
        };
        let (call_id, Settled { prompt_tokens, completion_tokens, .. }) = (self.call_id, used);
        tracing::error!(%call_id, prompt_tokens, completion_tokens, "the usage of a call isn't counted: {why}");
        self.free().await;
    }

    /// Ends the reservation of a call that costs nothing.
    pub(crate) async fn release(mut self, outcome: Outcome) {
        self.counters.note_outcome(&self.model, outcome);
        self.is_settled = true;
        self.free().await;
    }

    async fn free(&mut self) {
        match reservations::release(&self.billing, self.reservation.id).await {
            Err(error) if error.code != Code::ReservationNotFound => {
                let (call_id, reservation_id) = (self.call_id, self.reservation.id);
                tracing::warn!(%call_id, %reservation_id, "a reservation isn't released, and expires by itself: {error}");
            }
            _ => {}
        }
    }

    /// Does this work, which may take longer than the reservation lives, and extends it meanwhile.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let minutes = u64::try_from(self.billing.settings.reservation_minutes).unwrap_or_default();
        let half_its_life = Duration::from_secs(minutes.max(1).saturating_mul(30));
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(half_its_life) => self.extend().await,
            }
        }
    }

    async fn extend(&mut self) {
        match reservations::extend(&self.billing, self.reservation.id).await {
            Ok(extended) => self.reservation = extended,
            Err(error) => {
                // The usage counts all the same; only the money isn't held any more.
                let (call_id, reservation_id) = (self.call_id, self.reservation.id);
                tracing::warn!(%call_id, %reservation_id, "a reservation can't be extended: {error}");
            }
        }
    }

    fn event(&self, used: Settled) -> Event {
        Event {
            id: self.call_id.to_string().into(),
            source: EVENT_SOURCE.into(),
            // The price in force when the call was admitted: the one that it was reserved by.
            time: self.reserved_at,
            usage: Usage {
                caller: self.caller.clone(),
                model: Arc::clone(&self.model),
                kind: self.kind,
                prompt_tokens: used.prompt_tokens,
                completion_tokens: used.completion_tokens,
                cached_prompt_tokens: used.cached_prompt_tokens,
                is_estimated: used.estimated,
                reservation_id: Some(self.reservation.id),
                corrects: None,
            },
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_settled {
            let (call_id, reservation_id) = (self.call_id, self.reservation.id);
            tracing::error!(%call_id, %reservation_id, "a call ended without being settled: its reservation expires by itself");
        }
    }
}
