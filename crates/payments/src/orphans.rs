//! Money paid to deleted organizations on a page that was still open. No one can use this money, so the audit
//! reports it until an operator refunds it.

use billing::bookkeeping::payments::left_of;
use billing::store::wallets;
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::PaymentId;
use kernel::money::Nano;

use crate::Payments;
use crate::store::findings::{self, Finding};
use crate::store::payments::{self as store, Payment};

/// Records that a payment brought money to a deleted organization, or removes the finding once the money is
/// gone.
///
/// # Errors
/// The database fails.
pub(crate) async fn note(tx: &mut Tx, payment: &Payment, now: Time) -> Result<(), Error> {
    let organization_id = payment.organization_id;
    if store::has_organization(tx, organization_id).await? {
        return Ok(());
    }
    let Some(wallet) = wallets::get(tx, organization_id).await? else { return Ok(()) };
    let left = left_of(tx, &wallet, payment.id).await?;
    if left <= Nano::ZERO {
        return Ok(findings::remove(tx, &payment.id.text()).await?);
    }
    let finding = Finding {
        object_id: payment.id.text(),
        organization_id: Some(organization_id),
        expected: "no remainder of a payment to a deleted organization".to_owned(),
        found: format!("{left} {}", payment.currency),
    };
    findings::put(tx, &finding, now).await?;
    tracing::error!(payment_id = %payment.id, %organization_id, %left, currency = payment.currency,
        "a payment came after its organization was deleted: refund it with `tollkeeper payment refund`");
    Ok(())
}

/// Like [`look_at`], for a payment that was partly or fully refunded.
///
/// # Errors
/// The database fails.
pub(crate) async fn look_again(payments: &Payments, id: PaymentId) -> Result<(), Error> {
    let payment = store::get(&mut payments.db.read().await?, id).await?;
    match payment {
        Some(payment) => look_at(payments, &payment).await,
        None => Ok(()),
    }
}

/// Like [`note`], in its own transaction.
///
/// # Errors
/// The database fails.
pub(crate) async fn look_at(payments: &Payments, payment: &Payment) -> Result<(), Error> {
    if store::has_organization(&mut payments.db.read().await?, payment.organization_id).await? {
        return Ok(());
    }
    let mut tx = payments.db.write().await?;
    note(&mut tx, payment, payments.clock.now()).await?;
    Ok(tx.commit().await?)
}
