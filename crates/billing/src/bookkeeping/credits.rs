//! Credits: operators add them and take them back, and they end at their expiry.

use crate::rules::books::{Credit, Source};
use crate::{Billing, store};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::{CreditId, OrganizationId};
use kernel::money::Nano;

use crate::store::ledger::{Account, Movement};
use crate::store::wallets::Wallet;
use trail::{Action, Trail};

use super::{OperatorError, check_payable, invoice_changes, is_database_unusable};
use crate::books::booking::{Booking, Deposit};

/// Number of credits that one statement looks up.
const EXPIRED_AT_ONCE: i64 = 100;
/// Number of credits on a page.
const PAGE_SIZE: i64 = 100;
/// Maximum length of a reference, in characters.
const MAX_REFERENCE_CHARS: usize = 200;
/// Prefixes of references that only the service itself creates.
const RESERVED_PREFIXES: [&str; 4] = ["discount:", "payment:", "void:", "correction:"];

/// A credit to be added by an operator.
#[derive(Clone, Debug)]
pub struct NewCredit {
    pub organization_id: OrganizationId,
    pub amount: Nano,
    /// Unique within the organization: credits with the same reference are the same credit.
    pub reference: String,
    /// `true` for a grant, `false` for a purchase.
    pub is_grant: bool,
    pub expires_at: Option<Time>,
}

impl NewCredit {
    fn source(&self) -> Source {
        if self.is_grant { Source::Grant } else { Source::Purchase }
    }

    /// Checks everything that doesn't depend on the organization.
    fn check(&self) -> Result<(), String> {
        let reference = &self.reference;
        if self.amount <= Nano::ZERO {
            return Err("--amount must be more than 0, for instance 25.00".to_owned());
        }
        if reference.trim().is_empty() || reference.chars().count() > MAX_REFERENCE_CHARS {
            return Err(format!(
                "--reference must be 1 to {MAX_REFERENCE_CHARS} characters, for instance the number of a \
                 payment"
            ));
        }
        if reference.chars().any(char::is_control) {
            return Err("--reference must be one line without control characters".to_owned());
        }
        match RESERVED_PREFIXES.iter().find(|prefix| reference.starts_with(**prefix)) {
            Some(prefix) => {
                Err(format!("--reference can't start with `{prefix}`: the service uses this prefix itself"))
            }
            None => Ok(()),
        }
    }

    /// Checks everything that depends on the wallet.
    fn check_against_wallet(&self, wallet: &Wallet, now: Time) -> Result<(), String> {
        check_payable(self.amount, &wallet.currency)?;
        wallet.check_fits(self.amount)?;
        if self.expires_at.is_some_and(|until| until <= now) {
            return Err(format!("--expires-at must be in the future; it is {now} now"));
        }
        Ok(())
    }

    /// Checks that an existing credit with this reference is the same credit.
    fn check_same(&self, there: &Credit) -> Result<(), String> {
        let same = there.amount == self.amount
            && there.source == self.source()
            && there.expires_at == self.expires_at;
        if same {
            return Ok(());
        }
        let until = there.expires_at.map(|until| format!(" until {until}")).unwrap_or_default();
        Err(format!(
            "another credit already has the reference `{}`: a {} of {}{until}; nothing was added",
            self.reference,
            there.source.as_str(),
            there.amount
        ))
    }
}

/// An added credit.
#[derive(Clone, Debug)]
pub struct AddedCredit {
    pub credit: Credit,
    /// `true` if the credit had already been added.
    pub existed: bool,
    /// The wallet, including the credit.
    pub wallet: Wallet,
}

/// Adds a credit, unless its reference already exists. The credit pays debts first; the rest can be spent.
///
/// # Errors
/// The credit is invalid, or the organization doesn't exist; the database fails.
pub async fn add(billing: &Billing, new: &NewCredit, trail: &Trail) -> Result<AddedCredit, OperatorError> {
    new.check().map_err(OperatorError::Invalid)?;
    let (organization_id, now) = (new.organization_id, billing.clock.now());
    let mut tx = billing.db().write().await?;
    let booking = Booking { billing, trail, now };
    let Some(mut wallet) = booking.lock(&mut tx, organization_id).await? else {
        return Err(OperatorError::Invalid(format!("organization {organization_id} doesn't exist")));
    };
    if let Some(credit) = store::credits::by_reference(&mut tx, organization_id, &new.reference).await? {
        new.check_same(&credit).map_err(OperatorError::Invalid)?;
        return Ok(AddedCredit { credit, existed: true, wallet });
    }
    new.check_against_wallet(&wallet, now).map_err(OperatorError::Invalid)?;
    let deposit = Deposit {
        movement: Movement::Credit,
        key: format!("credit:{}", new.reference),
        source: new.source(),
        reference: new.reference.clone(),
        amount: new.amount,
        expires_at: new.expires_at,
        pays_first: None,
    };
    let credit = booking.deposit(&mut tx, &mut wallet, deposit).await?;
    let subject = (Action::CreditAdded, credit.id.to_string());
    booking.record_amount(&mut tx, subject, organization_id, new.amount).await?;
    tx.commit().await?;
    Ok(AddedCredit { credit, existed: false, wallet })
}

/// A page of an organization's credits, the oldest first.
#[derive(Clone, Debug)]
pub struct CreditPage {
    /// Empty at the end.
    pub credits: Vec<Credit>,
    /// ISO 4217 code.
    pub currency: String,
}

/// Lists the credits of an organization after the credit `after`; with `all`, used-up credits are included.
///
/// # Errors
/// The organization doesn't exist; the database fails.
pub fn list(
    billing: &Billing,
    organization_id: OrganizationId,
    all: bool,
    after: Option<CreditId>,
) -> BoxFuture<'_, Result<CreditPage, OperatorError>> {
    Box::pin(async move {
        let mut tx = billing.db().read().await?;
        let wallet = store::wallets::get(&mut tx, organization_id).await?;
        let unknown = || OperatorError::Invalid(format!("organization {organization_id} doesn't exist"));
        let currency = wallet.ok_or_else(unknown)?.currency;
        let credits = store::credits::list(&mut tx, organization_id, all, after, PAGE_SIZE).await?;
        Ok(CreditPage { credits, currency })
    })
}

/// A credit from which an amount was taken back.
#[derive(Clone, Debug)]
pub struct CreditTakeBack {
    /// The credit after the change.
    pub credit: Credit,
    pub amount: Nano,
    /// The wallet after the change.
    pub wallet: Wallet,
}

/// Takes back the remainder of a credit, or a part of it, after a refunded purchase or a mistaken grant.
/// Amounts that were used or are reserved for calls in progress aren't touched.
///
/// # Errors
/// The credit doesn't exist, or its remainder is smaller than the amount; the database fails.
pub async fn take_back(
    billing: &Billing,
    id: CreditId,
    amount: Option<Nano>,
    trail: &Trail,
) -> Result<CreditTakeBack, OperatorError> {
    let unknown = || {
        OperatorError::Invalid(format!(
            "credit {id} doesn't exist; `credit list` shows the credits of an organization"
        ))
    };
    let booking = Booking { billing, trail, now: billing.clock.now() };
    let mut tx = billing.db().write().await?;
    let owner = store::credits::owner(&mut tx, id).await?.ok_or_else(unknown)?;
    let mut wallet = booking.lock(&mut tx, owner).await?.ok_or_else(unknown)?;
    let mut credit = store::credits::get(&mut tx, id).await?.ok_or_else(unknown)?;
    let amount = amount.unwrap_or(credit.remaining);
    if credit.remaining == Nano::ZERO {
        return Err(OperatorError::Invalid(format!("the credit `{}` has no remainder", credit.reference)));
    }
    if amount <= Nano::ZERO || amount > credit.remaining {
        let (left, currency) = (credit.remaining, &wallet.currency);
        return Err(OperatorError::Invalid(format!(
            "--amount {amount} can't be taken back: {left} {currency} of the credit `{}` remain",
            credit.reference
        )));
    }
    if amount > wallet.available() {
        return Err(OperatorError::Invalid(format!(
            "{} {} of the wallet are reserved for calls in progress: try again when they have ended, or \
             take back less",
            wallet.reserved, wallet.currency
        )));
    }
    let how = (Movement::Credit, Account::of(credit.source));
    invoice_changes::withdraw(&booking, &mut tx, &mut wallet, &credit, how, amount).await?;
    booking.write(&mut tx, &mut wallet).await?;
    credit.remaining = Nano::from_units(credit.remaining.units() - amount.units());
    booking.record_amount(&mut tx, (Action::CreditTakenBack, id.to_string()), owner, amount).await?;
    tx.commit().await?;
    Ok(CreditTakeBack { credit, amount, wallet })
}

/// Ends every expired credit. Returns the number of ended credits.
pub async fn expire_due(billing: &Billing, trail: &Trail) -> Result<usize, Error> {
    let (mut after, mut ended) = (None, 0);
    loop {
        if !billing.clock_guard.is_trusted() {
            return Ok(ended);
        }
        let mut tx = billing.db().read().await?;
        let now = billing.clock_guard.time_in(&mut tx).await?;
        let slice = store::credits::list_expired(&mut tx, now, after, EXPIRED_AT_ONCE).await?;
        let Some(last) = slice.last() else { return Ok(ended) };
        after = Some(last.id);
        for expiring in slice {
            match expire_in_wallet(billing, expiring.organization_id, trail).await {
                Ok(more) => ended += more,
                Err(error) if is_database_unusable(&error) => return Err(error),
                Err(error) => tracing::error!(credit = %expiring.id, "a credit can't be ended: {error}"),
            }
        }
    }
}

/// Ends the expired credits of a wallet. Returns the number of ended credits.
async fn expire_in_wallet(
    billing: &Billing,
    organization_id: OrganizationId,
    trail: &Trail,
) -> Result<usize, Error> {
    let mut tx = billing.db().write().await?;
    let booking = Booking { billing, trail, now: billing.clock.now() };
    let mut wallet = store::wallets::lock_existing(&mut tx, organization_id, &billing.clock_guard).await?;
    // Servers of earlier versions don't maintain `next_expiry_at`.
    wallet.note_expiry(Some(wallet.locked_at));
    let ended = booking.expire_credits(&mut tx, &mut wallet).await?;
    booking.write(&mut tx, &mut wallet).await?;
    tx.commit().await?;
    Ok(ended)
}
