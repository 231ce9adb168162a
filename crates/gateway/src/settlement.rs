//! The settlement of calls: every call that has reserved money is settled here, exactly once.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::Admitted;
use crate::count::Settled;
use crate::counters::{Counters, Outcome};
use crate::gateway::Gateway;
use crate::progress::{Extensions, Progress};
use crate::record::{CallRecord, End};
use billing::Billing;
use billing::books::Reservation;
use billing::calls::{self, Charge};
use billing::reservations;
use billing::usage::{Caller, Event, GATEWAY_SOURCE, Outcome as EventOutcome, Usage};
use call_log::entries::{NewCall, Usage as LoggedUsage};
use catalog::{Component, Kind, Parts, Tokens};
use kernel::clock::Time;
use kernel::error::Code;
use kernel::ids::{ModelCallId, OrganizationId, ProjectId};
use keys::model_callers::ModelCaller;

/// The wait after the first failed attempt to record the usage of a call. The wait doubles up to the maximum.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Money that is reserved for a call. It is either captured or released, never both.
pub(crate) struct Hold {
    billing: Billing,
    counters: Arc<Counters>,
    call_id: ModelCallId,
    organization_id: OrganizationId,
    project_id: ProjectId,
    reserved_at: Time,
    reserved_prompt_tokens: i64,
    reservation: Reservation,
    extensions: Extensions,
    caller: Caller,
    model: Arc<str>,
    kind: Kind,
    is_settled: bool,
}

impl Hold {
    /// Returns the hold of a call whose reservation was made at `reserved_at`.
    pub(crate) fn new(
        gateway: &Gateway,
        call: &Admitted,
        reservation: Reservation,
        caller: &ModelCaller,
    ) -> Self {
        let (call_id, model) = (call.call_id, &call.model);
        let (organization_id, project_id) = (call.organization_id, caller.project_id());
        let caller = match caller.key() {
            Some(key) => Caller::ApiKey(key.id),
            None => Caller::user(caller.project_id(), caller.user_id()),
        };
        let (billing, counters) = (gateway.billing.clone(), Arc::clone(gateway.counters()));
        let extensions = Extensions::new(&billing, call_id, reservation.id);
        Self {
            billing,
            counters,
            call_id,
            organization_id,
            project_id,
            reserved_at: call.reserved_at,
            reserved_prompt_tokens: call.bounds.reserved_prompt_tokens,
            reservation,
            extensions,
            caller,
            model: model.id.as_str().into(),
            kind: model.kind,
            is_settled: false,
        }
    }

    /// Captures the price of the usage at the upstream that was called last. The capture is durable when this
    /// returns; while the database fails, it is retried.
    pub(crate) async fn capture(self, used: Settled, end: End, record: &CallRecord) {
        let (outcome, course) = (end.outcome, record.course(end));
        let (upstream, route) = (record.upstream_id(), record.costed_route());
        let used = self.fitted(used, upstream);
        self.counters.note_outcome(&self.model, outcome);
        self.counters.note_tokens(&self.model, upstream, used);
        if used.prompt_tokens > self.reserved_prompt_tokens {
            let (call_id, reserved_tokens) = (self.call_id, self.reserved_prompt_tokens);
            self.counters.note_excess(&self.model, upstream);
            tracing::warn!(
                %call_id, upstream, prompt_tokens = used.prompt_tokens, reserved_tokens,
                "an upstream counted more tokens of a prompt than were reserved: all of them are charged"
            );
        }
        if used.estimated && outcome == Outcome::Completed && self.counters.is_first_estimate(upstream) {
            let call_id = self.call_id;
            tracing::warn!(
                %call_id, upstream,
                "an upstream didn't report the tokens of a complete answer, so they are estimated. Run \
                 `tollkeeper upstream check`, and see the upstream's documentation for how to turn on usage \
                 reports. The metric `tollkeeper_gateway_upstream_tokens_total` shows the share of \
                 estimates. This is logged once per start"
            );
        }
        let mut wait = FIRST_RETRY;
        loop {
            match calls::charge(&self.billing, self.event(used), route.as_ref(), course.clone()).await {
                Ok(charge) => return self.finish_capture(used, charge).await,
                Err(error) => {
                    let (call_id, retry_in_ms) = (self.call_id, wait.as_millis());
                    tracing::warn!(%call_id, retry_in_ms, "the usage of a call can't be recorded yet: {error}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }

    /// Returns the usage without parts that are impossible for the model or that exceed their total.
    /// Their tokens are charged at the price of the whole.
    fn fitted(&self, used: Settled, upstream: &str) -> Settled {
        let possible = used.parts.iter().filter(|(part, _)| part.is_possible(self.kind));
        let parts = possible.fold(Parts::default(), |parts, (part, quantity)| parts.with(part, quantity));
        let cached = used.cached_prompt_tokens.filter(|_| Component::CachedPrompt.is_possible(self.kind));
        let (prompt, completion) = (used.prompt_tokens, used.completion_tokens);
        let all = Tokens { parts, ..Tokens::new(prompt, cached.unwrap_or_default(), completion) };
        let (fitting, left_out) = all.fitted();
        if let Some(left_out) = left_out.to_text()
            && self.counters.is_misfit_due(upstream, self.billing.clock.steady_ms())
        {
            let (call_id, cached) = (self.call_id, cached.unwrap_or_default());
            let parts = parts.to_text().unwrap_or_default();
            tracing::warn!(
                %call_id, upstream, prompt_tokens = prompt, cached_prompt_tokens = cached, completion_tokens = completion,
                parts, left_out,
                "an upstream reported parts of tokens that exceed their total: the tokens of omitted parts are charged at \
                 the price of the whole; logged at most once per minute for each upstream"
            );
        }
        let cached_prompt_tokens = cached.map(|_| fitting.cached_prompt);
        Settled { cached_prompt_tokens, parts: fitting.parts, ..used }
    }

    async fn finish_capture(mut self, used: Settled, charge: Charge) {
        self.is_settled = true;
        let outcomes = match charge {
            Charge::Event(outcome) => vec![outcome],
            Charge::Rest(outcomes) => {
                let call_id = self.call_id;
                tracing::warn!(%call_id, "the reservation of a call had expired, and its progress was charged: the rest is charged now");
                outcomes
            }
        };
        let why = outcomes.into_iter().find_map(|outcome| match outcome {
            EventOutcome::New | EventOutcome::Duplicate => None,
            EventOutcome::Refused(refusal) => Some(refusal.message),
            EventOutcome::Conflict => Some("another event has the same id".to_owned()),
        });
        let Some(why) = why else { return };
        let (call_id, Settled { prompt_tokens, completion_tokens, .. }) = (self.call_id, used);
        tracing::error!(%call_id, prompt_tokens, completion_tokens, "the usage of a call isn't counted: {why}");
        self.free(None).await;
    }

    /// Captures the price of the usage, if any.
    pub(crate) async fn end(self, used: Option<Settled>, end: End, record: &CallRecord) {
        match used {
            Some(used) => self.capture(used, end, record).await,
            None => self.release(end, record).await,
        }
    }

    /// Ends the reservation of a call that costs nothing.
    pub(crate) async fn release(mut self, end: End, record: &CallRecord) {
        self.counters.note_outcome(&self.model, end.outcome);
        self.is_settled = true;
        let call = NewCall {
            id: self.call_id,
            organization_id: self.organization_id,
            project_id: self.project_id,
            caller: self.caller.id(),
            model: Some(Arc::clone(&self.model)),
            course: record.course(end),
            usage: LoggedUsage::default(),
            origin: None,
        };
        if end.is_refusal() {
            // A client that repeats such calls would add many rows.
            self.billing.call_log.note_refusal(call);
            self.free(None).await;
        } else {
            self.free(Some(call)).await;
        }
    }

    /// Ends the reservation, and logs the call if the log can be written.
    async fn free(&mut self, call: Option<NewCall>) {
        let id = self.reservation.id;
        let is_logged = call.is_some();
        let mut released = match call {
            Some(call) => reservations::release_call(&self.billing, id, call).await,
            None => reservations::release(&self.billing, id).await,
        };
        if is_logged && released.as_ref().is_err_and(|error| error.code != Code::ReservationNotFound) {
            released = reservations::release(&self.billing, id).await;
        }
        match released {
            Err(error) if error.code != Code::ReservationNotFound => {
                let (call_id, reservation_id) = (self.call_id, self.reservation.id);
                tracing::warn!(%call_id, %reservation_id, "a reservation can't be released, and will expire: {error}");
            }
            _ => {}
        }
    }

    /// Returns the progress that the call updates, which is written with each extension.
    pub(crate) fn progress(&self) -> Progress {
        self.extensions.progress()
    }

    /// Runs a future that may outlast the reservation, and extends the reservation in the meantime.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.extensions.during(work).await
    }

    fn event(&self, used: Settled) -> Event {
        Event {
            id: self.call_id.to_string().into(),
            source: GATEWAY_SOURCE.into(),
            // The call is charged at the price at the time of its reservation.
            time: self.reserved_at,
            usage: Usage {
                caller: self.caller.clone(),
                model: Arc::clone(&self.model),
                kind: self.kind,
                prompt_tokens: used.prompt_tokens,
                completion_tokens: used.completion_tokens,
                cached_prompt_tokens: used.cached_prompt_tokens,
                parts: used.parts.into(),
                service_tier: used.service_tier,
                is_estimated: used.estimated,
                rest: None,
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
            tracing::error!(%call_id, %reservation_id, "a call ended without being settled: its reservation will expire");
        }
    }
}
