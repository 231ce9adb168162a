//! Mail to an organization's owners about its automatic top-up.

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use mail::posting::Draft;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template, TopUpNotice};
use tenants::store::organization_members;

use crate::Payments;
use crate::store::payments::Payment;

/// The service as the sender has no limit of e-mails. Limits apply to the recipients.
const SENDER: Sender = Sender { account: None, address: None };

/// Queues an e-mail to the owners. `reason` is `retried`, or why the top-up was paused. Must be called after
/// the transaction has locked all wallets it needs.
pub(crate) async fn notify_owners(
    payments: &Payments,
    tx: &mut Tx,
    organization_id: OrganizationId,
    (reason, payment): (&str, Option<&Payment>),
    now: Time,
) -> Result<(), Error> {
    let owners = organization_members::owners(tx, organization_id).await?;
    let Some((name, _)) = owners.first() else { return Ok(()) };
    let notice = TopUpNotice {
        reason: reason.to_owned(),
        amount: payment
            .map(|payment| payment.total().unwrap_or(payment.amount()).to_string())
            .unwrap_or_default(),
        currency: payment.map(|payment| payment.currency.clone()).unwrap_or_default(),
        checkout_url: payment.and_then(|payment| payment.checkout_url.clone()),
    };
    let about = About { organization: Some(name.clone()), top_up: Some(notice), ..About::default() };
    let draft = Draft { template: Template::AutoTopUp, about };
    let recipients = owners.into_iter().map(|(_, email)| email).collect();
    payments.tenants.outbox.post_all(tx, &SENDER, &draft, recipients, now).await
}
