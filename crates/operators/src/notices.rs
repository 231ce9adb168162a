//! E-mails about an operator's changes.

use accounts::store::users::User;
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use mail::posting::Draft;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use tenants::store::organization_members;

use crate::Operators;

/// The sender of these e-mails. Only the limits per recipient apply, because operators have no limit.
const SENDER: Sender = Sender { account: None, address: None };

/// Notifies a user of a change, unless their address isn't verified: its owner may have nothing to do with
/// the account.
pub(crate) async fn notify_person(
    operators: &Operators,
    tx: &mut Tx,
    user: &User,
    change: &str,
    now: Time,
) -> Result<(), Error> {
    if user.email_verified_at.is_none() {
        return Ok(());
    }
    let about = About { change: Some(change.to_owned()), ..About::default() };
    let draft = Draft { template: Template::ChangedByOperator, about };
    operators.mail.outbox.post(tx, &SENDER, &draft, &user.email, now).await
}

/// Notifies the owners of an organization of a change. The change is already committed, so an error is only
/// logged.
pub(crate) async fn notify_owners(operators: &Operators, organization_id: OrganizationId, change: &str) {
    if let Err(error) = post_to_owners(operators, organization_id, change).await {
        tracing::error!(%organization_id, "the owners can't be notified of a change: {error}");
    }
}

async fn post_to_owners(
    operators: &Operators,
    organization_id: OrganizationId,
    change: &str,
) -> Result<(), Error> {
    let now = operators.clock.now();
    let mut tx = operators.db.write().await?;
    let owners = organization_members::owners(&mut tx, organization_id).await?;
    let Some((name, _)) = owners.first() else { return Ok(()) };
    let about =
        About { organization: Some(name.clone()), change: Some(change.to_owned()), ..About::default() };
    let draft = Draft { template: Template::ChangedByOperator, about };
    let recipients = owners.into_iter().map(|(_, email)| email).collect();
    operators.mail.outbox.post_all(&mut tx, &SENDER, &draft, recipients, now).await?;
    tx.commit().await?;
    operators.mail.outbox.notify_one();
    Ok(())
}
