//! The outbox. An e-mail is counted against the hourly limits before it is queued.
//!
//! If a limit is reached, a request for an e-mail is refused, and the error contains the remaining wait. An
//! e-mail that is only a notice of another change is dropped, and the change is made. Neither depends on
//! whether an address has an account.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::bounds::{Bounds, Counter};
use crate::store;
use crate::store::mail_counters::{Excess, Sender};
use crate::store::outbox::{About, Template};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error, RateLimit};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::random::Random;
use metrics::{MailLimit, Metrics};
use trail::Trail;

impl Sender {
    /// Creates the sender for a caller without a credential.
    pub fn visitor(trail: &Trail) -> Self {
        Self { account: None, address: trail.address }
    }

    /// Creates the sender for a user, or for an API key that acts on the user's behalf.
    pub fn person(trail: &Trail, user_id: UserId) -> Self {
        Self { account: Some(user_id), address: trail.address }
    }
}

/// An e-mail to be queued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    /// The kind of the e-mail.
    pub template: Template,
    /// The values that the template fills in.
    pub about: About,
}

impl Draft {
    /// Creates a draft without further values, for e-mails that are only about the recipient's account.
    pub fn plain(template: Template) -> Self {
        Self { template, about: About::default() }
    }
}

/// Queues e-mails, and wakes the job that sends them.
pub struct Outbox {
    random: Random,
    /// `None` if limits are disabled.
    bounds: Option<Bounds>,
    metrics: Arc<Metrics>,
    wake: Notify,
}

impl Outbox {
    /// Creates an outbox that accepts e-mails within these bounds.
    pub fn new(random: Random, bounds: Option<Bounds>, metrics: Arc<Metrics>) -> Self {
        Self { random, bounds, metrics, wake: Notify::new() }
    }

    /// Wakes the job that sends e-mails. Called after the transaction that queued an e-mail was committed.
    pub fn notify_one(&self) {
        self.wake.notify_one();
    }

    /// Waits for [`Outbox::notify_one`].
    pub async fn notified(&self) {
        self.wake.notified().await;
    }

    /// Queues an e-mail to one recipient. It is sent if, and only if, this transaction is committed.
    ///
    /// # Errors
    /// 429 with the remaining wait if a limit is reached and the e-mail isn't a notice.
    pub async fn post(
        &self,
        tx: &mut Tx,
        sender: &Sender,
        draft: &Draft,
        recipient: &str,
        now: Time,
    ) -> Result<(), Error> {
        self.post_all(tx, sender, draft, vec![recipient.to_owned()], now).await
    }

    /// Queues an e-mail to several recipients, like [`Outbox::post`].
    ///
    /// # Errors
    /// Those of [`Outbox::post`].
    pub fn post_all<'a>(
        &'a self,
        tx: &'a mut Tx,
        sender: &'a Sender,
        draft: &'a Draft,
        recipients: Vec<String>,
        now: Time,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.admit_and_insert(tx, sender, draft, recipients, now))
    }

    async fn admit_and_insert(
        &self,
        tx: &mut Tx,
        sender: &Sender,
        draft: &Draft,
        recipients: Vec<String>,
        now: Time,
    ) -> Result<(), Error> {
        let bounds = self.bounds.as_ref();
        let admission =
            store::mail_counters::admit(tx, bounds, sender, draft.template, recipients, now).await?;
        if draft.template.is_notice() {
            self.drop_excess(draft.template, &admission.excess);
        } else if let Some(longest_wait) = admission.excess.iter().max_by_key(|excess| excess.retry_after_ms)
        {
            return Err(refusal(longest_wait));
        }
        let Draft { template, about } = draft;
        store::outbox::insert_all(tx, *template, &admission.admitted, about, now, &self.random).await?;
        Ok(())
    }

    fn drop_excess(&self, template: Template, excess: &[Excess]) {
        for Excess { counter, limit, mails, .. } in excess {
            self.metrics.mails_suppressed.add(limit_of(*counter), *mails);
            if *mails > 0 {
                tracing::warn!(
                    template = template.as_str(),
                    mails,
                    limit,
                    "notices were dropped: `{}` is reached for this hour",
                    counter.key()
                );
            }
        }
    }
}

fn limit_of(counter: Counter) -> MailLimit {
    match counter {
        Counter::Account => MailLimit::Account,
        Counter::Address => MailLimit::Address,
        Counter::Recipient | Counter::PasswordReset | Counter::Verification => MailLimit::Recipient,
    }
}

fn refusal(excess: &Excess) -> Error {
    let Excess { counter, limit, retry_after_ms, .. } = *excess;
    let rate_limit = RateLimit { limit, retry_after_ms, reset_ms: retry_after_ms };
    let error = Error { rate_limit: Some(rate_limit), ..Error::new(Code::TooManyAttempts) };
    let mails = match counter {
        Counter::Account => format!("Your account has reached the maximum of {limit} e-mails per hour"),
        Counter::Address => {
            format!("Your network address has reached the maximum of {limit} e-mails per hour")
        }
        Counter::Recipient => {
            format!("This e-mail address has reached the maximum of {limit} e-mails per hour")
        }
        Counter::Verification => {
            format!("This e-mail address has reached the maximum of {limit} verification links per hour")
        }
        Counter::PasswordReset => return error,
    };
    error.message(format!("{mails}; retry after the delay in the `retry-after` header."))
}
