//! The progress of a call, which is written to its reservation from time to time. If the process is killed,
//! the call is charged for the last progress (docs/contract/gateway.md#what-a-killed-server-costs).

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::count::Totals;
use billing::Billing;
use billing::reservations;
use kernel::error::Code;
use kernel::ids::{ModelCallId, ReservationId};

/// The wait after the first failed attempt to write the progress. The wait doubles up to the maximum.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// The tokens used by a call so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<Option<Totals>>>);

impl Progress {
    /// Notes the tokens that the call would be charged for if it ended now.
    pub(crate) fn note(&self, used: Totals) {
        let is_nothing = used.prompt_tokens == 0 && used.completion_tokens == 0;
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (!is_nothing).then_some(used);
    }

    fn last(&self) -> Option<reservations::Progress> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|used| reservations::Progress {
            prompt_tokens: used.prompt_tokens,
            cached_prompt_tokens: used.cached_prompt_tokens,
            completion_tokens: used.completion_tokens,
            is_estimated: used.estimated,
        })
    }
}

/// Extends a call's reservation, four times in the lifetime of a reservation.
pub(crate) struct Extensions {
    billing: Billing,
    call_id: ModelCallId,
    reservation_id: ReservationId,
    progress: Progress,
    interval: Duration,
    next: Instant,
    /// `true` once the reservation has ended, so that nothing is left to extend.
    is_gone: bool,
}

impl Extensions {
    /// Schedules the extensions of a new reservation.
    pub(crate) fn new(billing: &Billing, call_id: ModelCallId, reservation_id: ReservationId) -> Self {
        let lives_s = u64::try_from(billing.settings.gateway_reservation_seconds).unwrap_or_default();
        let interval = Duration::from_secs(lives_s.max(4)) / 4;
        Self {
            billing: billing.clone(),
            call_id,
            reservation_id,
            progress: Progress::default(),
            interval,
            next: Instant::now() + interval,
            is_gone: false,
        }
    }

    /// Returns the progress that the call updates.
    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Runs this future, and extends the reservation in the meantime.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            never = self.run() => match never {},
        }
    }

    async fn run(&mut self) -> Infallible {
        while !self.is_gone {
            sleep_until(self.next).await;
            let began = Instant::now();
            self.extend().await;
            self.next = began + self.interval;
        }
        std::future::pending().await
    }

    /// Extends the reservation, and tries again until that succeeds or the reservation has ended.
    async fn extend(&mut self) {
        let (call_id, reservation_id) = (self.call_id, self.reservation_id);
        let mut wait = FIRST_RETRY;
        loop {
            let error =
                match reservations::extend_call(&self.billing, reservation_id, self.progress.last()).await {
                    Ok(_) => return,
                    Err(error) => error,
                };
            if error.code == Code::ReservationNotFound {
                self.is_gone = true;
                tracing::warn!(
                    %call_id, %reservation_id,
                    "the reservation of a call has expired, so its money is no longer reserved: the call is \
                     still charged"
                );
                return;
            }
            // The warning is logged once per extension, because a failing database affects every call.
            if wait == FIRST_RETRY {
                tracing::warn!(
                    %call_id, %reservation_id,
                    "the reservation of a call can't be extended, and expires if the database stays \
                     unavailable; trying again: {error}"
                );
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }
}
