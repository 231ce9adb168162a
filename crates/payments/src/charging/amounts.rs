//! The amounts of automatic top-ups: the charge and the tax on it.

use billing::books::booking::Booking;
use billing::store::wallets::Wallet;
use db::Tx;
use kernel::clock::{DAY_MS, Time};
use kernel::currencies::ChargeUnit;
use kernel::error::Error;

use super::{fail, fail_without_card};
use crate::rules::top_ups::{self, Charge, Gap};
use crate::store::auto_top_ups::{self, AutoTopUp, PausedReason};
use crate::store::payments::{self as store, Payment, Status};
use crate::taxes::Tax;
use crate::top_up_state::{arm, end, stop};
use crate::{Payments, notices};

/// The failure code of a charge that waits for the next day.
const DAILY_MAXIMUM: &str = "daily_maximum";

/// A charge and its tax, if known.
pub(super) enum Prepared {
    /// No charge: the payment has ended, or waits for the next day.
    Nothing,
    /// A payment whose tax isn't known yet, and the maximum total including tax.
    NeedsTax(Payment, Option<i64>),
    Ready(Payment),
}

/// Returns the payment with the amount to charge now and its tax.
pub(super) async fn prepare(
    payments: &Payments,
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    payment: Payment,
    tax_known: Tax,
) -> Result<Prepared, Error> {
    let now = booking.now;
    let top_up = auto_top_ups::get(tx, payment.organization_id).await?;
    let Some(top_up) = top_up.filter(AutoTopUp::is_active) else {
        end(tx, payment, Status::Canceled, "disabled", now).await?;
        arm(payments, booking, tx, wallet).await?;
        return Ok(Prepared::Nothing);
    };
    // Later attempts reuse the amount and the tax.
    if payment.attempts > 0 {
        return Ok(Prepared::Ready(payment));
    }
    let (charge, most_minor) = amount(payments, tx, wallet, &payment, &top_up, now).await?;
    let units = match (charge, &tax_known) {
        (Charge::NotNeeded, _) => {
            end(tx, payment, Status::Canceled, "not_needed", now).await?;
            arm(payments, booking, tx, wallet).await?;
            return Ok(Prepared::Nothing);
        }
        (Charge::OverCap, _) | (_, Tax::OverCap) => {
            let payment = end(tx, payment, Status::Canceled, "monthly_cap", now).await?;
            stop(payments, booking, tx, wallet, (PausedReason::MonthlyCap, Some(&payment))).await?;
            return Ok(Prepared::Nothing);
        }
        (Charge::OverDay, _) => {
            wait_for_next_day(payments, tx, payment, now).await?;
            return Ok(Prepared::Nothing);
        }
        (_, Tax::NoLocation) => {
            let why = ("tax_location", PausedReason::TaxLocation);
            fail(payments, booking, tx, wallet, payment, why).await?;
            return Ok(Prepared::Nothing);
        }
        (_, Tax::NoCustomer) => {
            fail_without_card(payments, booking, tx, wallet, payment).await?;
            return Ok(Prepared::Nothing);
        }
        (Charge::Units(units), _) => units,
    };
    let payment = Payment { failure_code: None, ..payment };
    let maximum = payments.settings.maximum(&wallet.currency);
    store::set_maximum(tx, payment.id, ChargeUnit::of(&wallet.currency).covering(maximum)).await?;
    Ok(with_tax(payment, payments.settings.stripe_tax, units, tax_known, most_minor))
}

/// Postpones a charge to the next day and notifies the owners once.
async fn wait_for_next_day(
    payments: &Payments,
    tx: &mut Tx,
    payment: Payment,
    now: Time,
) -> Result<(), Error> {
    let is_told = payment.failure_code.as_deref() == Some(DAILY_MAXIMUM);
    let next_day = now.day().start().plus_ms(DAY_MS);
    let waiting =
        Payment { next_at: Some(next_day), failure_code: Some(DAILY_MAXIMUM.to_owned()), ..payment };
    store::update(tx, &waiting, now).await?;
    if is_told {
        return Ok(());
    }
    tracing::warn!(payment_id = %waiting.id, organization_id = %waiting.organization_id,
        "an automatic top-up waits for the next day: the daily maximum is reached");
    let subject = (DAILY_MAXIMUM, Some(&waiting));
    notices::notify_owners(payments, tx, waiting.organization_id, subject, now).await
}

/// Returns a payment of `units`, including the tax if it's known and the total is within the maximum.
fn with_tax(payment: Payment, is_taxed: bool, units: i64, tax: Tax, most_minor: Option<i64>) -> Prepared {
    if !is_taxed {
        return Prepared::Ready(Payment { amount_minor: units, ..payment });
    }
    match tax {
        // The tax was calculated for an older balance.
        Tax::Calculated { calculation_id, amount_minor, tax_minor }
            if most_minor.is_none_or(|most| amount_minor + tax_minor <= most) =>
        {
            Prepared::Ready(Payment {
                amount_minor,
                is_taxed,
                tax_minor: Some(tax_minor),
                tax_calculation_id: Some(calculation_id),
                ..payment
            })
        }
        _ => Prepared::NeedsTax(
            Payment { amount_minor: units, is_taxed, tax_minor: None, ..payment },
            most_minor,
        ),
    }
}

/// Returns the amount to charge for the wallet's current state, and the maximum total including tax.
async fn amount(
    payments: &Payments,
    tx: &mut Tx,
    wallet: &Wallet,
    payment: &Payment,
    top_up: &AutoTopUp,
    now: Time,
) -> Result<(Charge, Option<i64>), Error> {
    let (day, month) = (now.day().start(), now.day().month().start());
    let this_month = store::topped_up_since(tx, payment, month).await?;
    let today = store::topped_up_since(tx, payment, day).await?;
    let gap = Gap {
        available: wallet.available(),
        threshold: top_up.threshold,
        restore_to: top_up.restore_to,
        monthly_cap: top_up.monthly_cap,
        charged_minor: this_month.total_minor(),
        daily_maximum: payments.settings.maximum(&wallet.currency),
        charged_today_minor: today.amount_minor,
        minimum: payments.settings.minimum(&wallet.currency),
    };
    let unit = ChargeUnit::of(&wallet.currency);
    let charge = top_ups::charge(gap, unit);
    let charge = charge.ok_or_else(|| Error::internal("the amount of a top-up has no number"))?;
    Ok((charge, gap.most(unit)))
}
