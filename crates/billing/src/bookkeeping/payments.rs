//! The movements of payments, under the wallet's lock: incoming money, and money that returns to its payer.
//!
//! The keys of these movements begin with `payment:` and the id of the payment. Each movement happens once,
//! because the ledger refuses a second one with the same key.

use crate::books::booking::{Booking, Deposit};
use crate::rules::books::{Credit, Source, cmp_use_order};
use crate::store;
use crate::store::ledger::{Account, Movement, Transfer};
use crate::store::wallets::Wallet;
use db::Tx;
use kernel::error::Error;
use kernel::ids::{InvoiceId, PaymentId};
use kernel::money::Nano;

/// The reason why money of a payment returns to its payer, or comes in again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause<'a> {
    /// The id of the refund, or of the dispute.
    pub id: &'a str,
    /// The number of this booking, starting at 1. A dispute may be booked several times.
    pub booking: i64,
}

impl<'a> Cause<'a> {
    /// Returns the cause of the first booking of a refund or a dispute.
    pub const fn first(id: &'a str) -> Self {
        Self { id, booking: 1 }
    }

    /// Returns the key of the resulting movement. `place` is the credit or debt that the money is taken from,
    /// or `back` if it comes in again.
    fn key(&self, payment_id: PaymentId, place: &str) -> String {
        let Self { id, booking } = self;
        match booking {
            1 => format!("payment:{payment_id}:{id}:{place}"),
            _ => format!("payment:{payment_id}:{id}:{place}:{booking}"),
        }
    }
}

/// Money that a payment brings into a wallet.
#[derive(Clone, Copy, Debug)]
pub struct Receipt<'a> {
    pub payment_id: PaymentId,
    /// The invoice that the money pays first.
    pub invoice_id: Option<InvoiceId>,
    /// The cause, if it isn't the payment itself: a failed refund, or a dispute whose money comes back.
    pub cause: Option<Cause<'a>>,
    pub amount: Nano,
}

impl Receipt<'_> {
    /// Returns the key of the movement, which is also the reference of the credit.
    fn key(&self) -> String {
        match self.cause {
            None => format!("payment:{}", self.payment_id),
            Some(cause) => cause.key(self.payment_id, "back"),
        }
    }
}

/// Adds the money of a payment to a locked wallet, and writes the wallet. The money pays debts first, and the
/// rest becomes a credit.
///
/// # Errors
/// The money was already added, the wallet overflows, or the database fails.
pub async fn receive(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    receipt: Receipt<'_>,
) -> Result<Credit, Error> {
    wallet.check_fits(receipt.amount).map_err(Error::internal)?;
    let deposit = Deposit {
        movement: Movement::Payment,
        key: receipt.key(),
        source: if receipt.invoice_id.is_some() { Source::Payment } else { Source::Purchase },
        reference: receipt.key(),
        amount: receipt.amount,
        expires_at: None,
        pays_first: receipt.invoice_id,
    };
    booking.deposit(tx, wallet, deposit).await
}

/// The credits from which an amount may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The remainder of the payment's own credits.
    FromOwnCredits,
    /// The payment's own credits first, then all others; the rest is a debt.
    FromWallet,
}

/// Returns the remainder of the credits of a payment.
///
/// # Errors
/// The database fails.
pub async fn left_of(tx: &mut Tx, wallet: &Wallet, payment_id: PaymentId) -> Result<Nano, db::Error> {
    let credits = store::credits::list_remaining(tx, wallet.organization_id).await?;
    let own = credits.iter().filter(|credit| is_of(credit, payment_id));
    Ok(Nano::from_units(own.map(|credit| credit.remaining.units()).sum()))
}

/// Takes an amount of a payment out of a locked wallet, for a refund or a dispute, and writes the wallet.
/// Returns `false` and takes nothing if the payment's own credits must cover the amount but don't, or if
/// their remainder is reserved.
///
/// # Errors
/// The amount was already taken, or the database fails.
pub async fn take(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    (payment_id, cause): (PaymentId, Cause<'_>),
    amount: Nano,
    taken: Taken,
) -> Result<bool, db::Error> {
    let mut credits = store::credits::list_remaining(tx, wallet.organization_id).await?;
    credits.sort_by(|a, b| {
        let order = |credit: &Credit| !is_of(credit, payment_id);
        order(a).cmp(&order(b)).then_with(|| cmp_use_order(a, b))
    });
    if taken == Taken::FromOwnCredits {
        let own = credits.iter().filter(|credit| is_of(credit, payment_id));
        let own: i128 = own.map(|credit| credit.remaining.units()).sum();
        if own < amount.units() || wallet.available() < amount {
            return Ok(false);
        }
    }
    let mut left = amount.units();
    for credit in credits {
        let part = left.min(credit.remaining.units());
        if part <= 0 {
            break;
        }
        left -= part;
        let place = (cause.key(payment_id, &credit.id.text()), Account::of(credit.source));
        post(booking, tx, wallet, place, part).await?;
        let remaining = Nano::from_units(credit.remaining.units() - part);
        store::credits::set_remaining(tx, credit.id, remaining).await?;
    }
    if left > 0 {
        // A debt of the month that is currently open. If it isn't paid by the end of the month, the month's
        // invoice brings it forward.
        let month = wallet.open_month.unix_months();
        let place = (cause.key(payment_id, &format!("debt-{month}")), Account::Payments);
        post(booking, tx, wallet, place, left).await?;
    }
    booking.write(tx, wallet).await?;
    Ok(true)
}

async fn post(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    (idempotency_key, account): (String, Account),
    units: i128,
) -> Result<(), db::Error> {
    let transfer = booking.transfer(wallet, Movement::Payment, account, Nano::from_units(-units));
    booking.post(tx, wallet, &Transfer { idempotency_key, ..transfer }).await
}

/// Returns `true` if a credit comes from this payment.
fn is_of(credit: &Credit, payment_id: PaymentId) -> bool {
    let rest =
        credit.reference.strip_prefix("payment:").and_then(|rest| rest.strip_prefix(&payment_id.text()));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}
