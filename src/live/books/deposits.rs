//! Money that comes into a wallet: what is owed is covered first, on the oldest invoices first, and the rest is a credit.

use crate::access::Trail;
use crate::app::App;
use crate::clock::Time;
use crate::db::{self, Tx};
use crate::error::Error;
use crate::ids::{CreditId, LedgerTransactionId, OrganizationId};
use crate::money::Nano;
use crate::rules::books::{self, Credit, Source};
use crate::rules::invoicing::{self, Status};
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::invoices::Invoice;
use crate::store::ledger::{Account, Movement, Transfer};
use crate::store::wallets::Wallet;

/// What comes in.
#[derive(Clone, Debug)]
pub struct Deposit {
    /// Why.
    pub movement: Movement,
    /// The movement's idempotency key.
    pub key: String,
    /// What kind of credit it becomes.
    pub source: Source,
    /// The credit's reference.
    pub reference: String,
    /// How much; more than nothing.
    pub amount: Nano,
    /// Until when the credit holds.
    pub expires_at: Option<Time>,
    /// What it does to open invoices.
    pub covers: Covers,
}

/// What money that comes in does to open invoices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covers {
    /// It pays them, the oldest first; but for so much, which paid one that the caller has seen to.
    OldestDues {
        /// What is spent already.
        but: Nano,
    },
    /// It lowers what a month that isn't closed yet will come to, so it pays nothing twice: only what nobody owes any more is
    /// taken off.
    OnlyExcess,
}

/// A deposit on its way.
pub struct Depositing<'a> {
    /// The application.
    pub app: &'a App,
    /// Who brings it.
    pub trail: &'a Trail,
    /// When.
    pub now: Time,
}

impl Depositing<'_> {
    /// Brings the money into a wallet that is locked by this transaction, and writes that wallet; the credit that comes of it,
    /// also when nothing is left of it.
    ///
    /// # Errors
    /// `Unique` of the database where the key or the reference was there before: look first, under the wallet's lock.
    pub async fn bring_in(
        &self,
        tx: &mut Tx,
        wallet: &mut Wallet,
        deposit: Deposit,
    ) -> Result<Credit, Error> {
        let (organization_id, random) = (wallet.organization_id, &self.app.random);
        let left = store::credits::left(tx, organization_id).await?;
        let owed = books::owed(wallet.posted, &left);
        let remaining = books::left_after_debts(owed, deposit.amount);
        let transfer = Transfer {
            id: LedgerTransactionId::new(self.now, random),
            organization_id,
            movement: deposit.movement,
            idempotency_key: deposit.key,
            account: Account::of(deposit.source),
            to_wallet: deposit.amount,
        };
        store::ledger::record(tx, &transfer, self.now).await?;
        let credit = Credit {
            id: CreditId::new(self.now, random),
            source: deposit.source,
            reference: deposit.reference,
            amount: deposit.amount,
            remaining,
            created_at: self.now,
            expires_at: deposit.expires_at,
        };
        store::credits::insert(tx, organization_id, &credit).await?;
        wallet.posted = Nano::from_units(wallet.posted.units() + deposit.amount.units());
        store::wallets::write(tx, wallet).await?;
        let covered = deposit.amount.units() - credit.remaining.units();
        let mut open = store::invoices::open(tx, organization_id).await?;
        let due: i128 = open.iter().map(|invoice| invoice.due.units()).sum();
        let covered = match deposit.covers {
            Covers::OldestDues { but } => covered - but.units(),
            Covers::OnlyExcess => due - (owed.units() - covered),
        };
        self.cover_dues(tx, &mut open, Nano::from_units(covered)).await?;
        Ok(credit)
    }

    /// Takes off open invoices what nobody owes any more: `owed` is what the wallet still does. For what lowers a month that isn't
    /// closed yet, and so pays no older one.
    ///
    /// # Errors
    /// The database's.
    pub async fn cover_excess(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        owed: Nano,
    ) -> Result<(), db::Error> {
        let mut open = store::invoices::open(tx, organization_id).await?;
        let due: i128 = open.iter().map(|invoice| invoice.due.units()).sum();
        self.cover_dues(tx, &mut open, Nano::from_units(due - owed.units())).await
    }

    /// Takes what was covered of a wallet's debt off its open invoices; what nothing is due of any more is paid.
    async fn cover_dues(&self, tx: &mut Tx, open: &mut [Invoice], covered: Nano) -> Result<(), db::Error> {
        let dues: Vec<_> = open.iter().map(|invoice| (invoice.id, invoice.due)).collect();
        for (id, due) in invoicing::cover(&dues, covered) {
            let Some(invoice) = open.iter_mut().find(|invoice| invoice.id == id) else { continue };
            invoice.due = due;
            if due == Nano::ZERO {
                invoice.status = Status::Paid;
                invoice.paid_at = Some(self.now);
                self.note(tx, Action::InvoicePaid, &id.to_string(), invoice.organization_id).await?;
            }
            store::invoices::set_status(tx, invoice).await?;
        }
        Ok(())
    }

    /// Adds an entry to the audit trail.
    pub async fn note(
        &self,
        tx: &mut Tx,
        action: Action,
        target: &str,
        organization_id: OrganizationId,
    ) -> Result<(), db::Error> {
        let event = Event { action, target: target.to_owned(), organization_id: Some(organization_id) };
        store::audit_log::record(tx, self.trail, &event, self.now, &self.app.random).await
    }
}
