//! Movements of a wallet and its credits, under the wallet's lock.
//!
//! A charge is paid from credits in the order of their use; the rest is a debt. Incoming money pays debts
//! first, starting with those of the oldest invoices, and the rest becomes a credit. A refund goes back into
//! the credits that paid. `credit_uses` records how much each credit paid for each billed month.

use std::collections::BTreeMap;

use crate::rules::books::{self, Credit, CreditPart, Source};
use crate::rules::invoicing::Status;
use crate::{Billing, store};
use db::Tx;
use events::data::{CreditAdded, CreditExpired, EventData, InvoiceChange, InvoiceChanged};
use kernel::clock::{Month, Time};
use kernel::error::Error;
use kernel::ids::{CreditId, InvoiceId, LedgerTransactionId, OrganizationId};
use kernel::money::Nano;

use super::debts::debts_of_open_months;
use crate::store::credits;
use crate::store::invoices::Invoice;
use crate::store::ledger::{self, Account, Movement, Transfer};
use crate::store::wallets::Wallet;
use trail::{Action, Event, Trail};

/// Money that comes into a wallet.
#[derive(Clone, Debug)]
pub struct Deposit {
    pub movement: Movement,
    /// The idempotency key of the ledger transaction.
    pub key: String,
    pub source: Source,
    /// The reference of the credit.
    pub reference: String,
    /// Greater than 0.
    pub amount: Nano,
    pub expires_at: Option<Time>,
    /// The invoice that is paid before older ones.
    pub pays_first: Option<InvoiceId>,
}

/// A refund of an amount that was billed in a month.
#[derive(Clone, Debug)]
pub struct Refund {
    /// The month in which the amount was billed.
    pub month: Month,
    /// Earlier billed months. If the amount exceeds the amount paid for `month`, the rest belongs to these.
    pub earlier: Vec<Month>,
    /// The amount that returns to credits, without the part that lowers a debt.
    pub amount: Nano,
    /// The kind of the new credit for the part that wasn't paid by a recorded credit.
    pub source: Source,
    /// The reference of that credit.
    pub reference: String,
}

/// The author and time of the bookings of one transaction. Expiry is decided by the time of the wallet's
/// lock, not by `now`.
pub struct Booking<'a> {
    pub billing: &'a Billing,
    /// The author, for the audit trail.
    pub trail: &'a Trail,
    pub now: Time,
}

impl Booking<'_> {
    /// Locks a wallet and ends its expired credits; the caller writes the wallet. Returns `None` if the
    /// wallet doesn't exist.
    ///
    /// # Errors
    /// The database fails.
    pub async fn lock(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
    ) -> Result<Option<Wallet>, db::Error> {
        let Some(mut wallet) = store::wallets::lock(tx, organization_id, &self.billing.clock_guard).await?
        else {
            return Ok(None);
        };
        self.expire_credits(tx, &mut wallet).await?;
        Ok(Some(wallet))
    }

    /// Ends the expired credits of a locked wallet, except for amounts that are reserved for calls. Returns
    /// the number of ended credits.
    ///
    /// # Errors
    /// The database fails.
    pub async fn expire_credits(&self, tx: &mut Tx, wallet: &mut Wallet) -> Result<usize, db::Error> {
        let now = wallet.locked_at;
        // An ended credit can't be restored, so nothing ends while the clock isn't trusted.
        if wallet.next_expiry_at.is_none_or(|at| at > now) || !self.billing.clock_guard.is_trusted() {
            return Ok(0);
        }
        let left = credits::list_remaining(tx, wallet.organization_id).await?;
        let ending = books::expiring_parts(&left, wallet.reserved, now);
        for part in &ending {
            self.expire_part(tx, wallet, *part).await?;
        }
        let is_deleted = |credit: &&Credit| {
            let ended = ending.iter().find(|part| part.credit_id == credit.id);
            ended.is_none_or(|part| part.remaining > Nano::ZERO)
        };
        wallet.next_expiry_at = left.iter().filter(is_deleted).filter_map(|credit| credit.expires_at).min();
        Ok(ending.len())
    }

    /// Adds a credit to a locked wallet.
    async fn insert_credit(&self, tx: &mut Tx, wallet: &Wallet, credit: &Credit) -> Result<(), db::Error> {
        credits::insert(tx, wallet.organization_id, credit).await?;
        let added = CreditAdded {
            organization_id: wallet.organization_id,
            credit_id: credit.id,
            kind: credit.source.as_str(),
            currency: wallet.currency.clone(),
            amount: credit.amount,
            expires_at: credit.expires_at,
        };
        self.emit(tx, &added).await
    }

    /// Queues an event about an invoice for webhooks.
    ///
    /// # Errors
    /// The database fails.
    pub async fn emit_invoice(
        &self,
        tx: &mut Tx,
        invoice: &Invoice,
        change: InvoiceChange,
    ) -> Result<(), db::Error> {
        let changed = InvoiceChanged {
            change,
            organization_id: invoice.organization_id,
            invoice_id: invoice.id,
            number: invoice.number,
            status: invoice.status.as_str(),
            month: invoice.month.to_string(),
            currency: invoice.currency.clone(),
            amount: invoice.amount,
        };
        self.emit(tx, &changed).await
    }

    async fn emit(&self, tx: &mut Tx, data: &impl EventData) -> Result<(), db::Error> {
        events::emit(tx, data, self.now, &self.billing.random).await
    }

    /// Ends a part of a credit.
    async fn expire_part(&self, tx: &mut Tx, wallet: &mut Wallet, part: CreditPart) -> Result<(), db::Error> {
        let to_wallet = Nano::from_units(-part.amount.units());
        let transfer = self.transfer(wallet, Movement::CreditExpiry, Account::ExpiredCredits, to_wallet);
        let idempotency_key = format!("credit_expiry:{}:{}", part.credit_id, transfer.id);
        self.post(tx, wallet, &Transfer { idempotency_key, ..transfer }).await?;
        credits::expire(tx, part.credit_id, part.remaining, self.now).await?;
        let target = part.credit_id.to_string();
        self.record_event(tx, Action::CreditExpired, &target, wallet.organization_id).await?;
        let expired = CreditExpired {
            organization_id: wallet.organization_id,
            credit_id: part.credit_id,
            currency: wallet.currency.clone(),
            amount: part.amount,
        };
        self.emit(tx, &expired).await
    }

    /// Records a movement, and adds it to the posted balance.
    ///
    /// # Errors
    /// The database fails.
    pub async fn post(&self, tx: &mut Tx, wallet: &mut Wallet, transfer: &Transfer) -> Result<(), db::Error> {
        ledger::record(tx, transfer, self.now).await?;
        wallet.post(transfer.to_wallet);
        Ok(())
    }

    /// Returns a movement of a locked wallet, with a unique idempotency key.
    pub fn transfer(
        &self,
        wallet: &Wallet,
        movement: Movement,
        account: Account,
        to_wallet: Nano,
    ) -> Transfer {
        let id = LedgerTransactionId::new(self.now, &self.billing.random);
        Transfer {
            id,
            organization_id: wallet.organization_id,
            movement,
            idempotency_key: format!("{}:{id}", movement.as_str()),
            account,
            to_wallet,
        }
    }

    /// Pays a charge for a month from credits, before it is posted. The rest is a debt. `reserved` is the
    /// amount that was reserved for the charge; it is taken even from expired credits.
    ///
    /// # Errors
    /// The database fails.
    pub async fn pay_from_credits(
        &self,
        tx: &mut Tx,
        wallet: &Wallet,
        month: Month,
        amount: Nano,
        reserved: Nano,
    ) -> Result<(), db::Error> {
        // A wallet without money has no credits left, except those that are reserved.
        let now = wallet.locked_at;
        let has_reserved = reserved > Nano::ZERO && wallet.next_expiry_at.is_some_and(|at| at <= now);
        if wallet.posted <= Nano::ZERO && !has_reserved {
            return Ok(());
        }
        let left = credits::list_remaining(tx, wallet.organization_id).await?;
        for part in books::charge(&left, amount, reserved, now) {
            use_credit(tx, wallet.organization_id, month, part).await?;
        }
        Ok(())
    }

    /// Adds money to a locked wallet, and writes the wallet. Returns the new credit, even if it was used up
    /// by debts.
    ///
    /// # Errors
    /// [`db::Error::Unique`] if the key or the reference already exists: check that first, under the wallet's
    /// lock.
    pub async fn deposit(&self, tx: &mut Tx, wallet: &mut Wallet, deposit: Deposit) -> Result<Credit, Error> {
        let (organization_id, random) = (wallet.organization_id, &self.billing.random);
        let transfer = Transfer {
            id: LedgerTransactionId::new(self.now, random),
            organization_id,
            movement: deposit.movement,
            idempotency_key: deposit.key,
            account: Account::of(deposit.source),
            to_wallet: deposit.amount,
        };
        self.post(tx, wallet, &transfer).await?;
        let credit = Credit {
            id: CreditId::new(self.now, random),
            source: deposit.source,
            reference: deposit.reference,
            amount: deposit.amount,
            remaining: deposit.amount,
            created_at: self.now,
            expires_at: deposit.expires_at,
        };
        self.insert_credit(tx, wallet, &credit).await?;
        wallet.note_expiry(credit.expires_at);
        self.pay_debts(tx, wallet, deposit.pays_first).await?;
        self.write(tx, wallet).await?;
        let credit = credits::get(tx, credit.id).await?;
        credit.ok_or_else(|| Error::internal("a credit that was just added doesn't exist"))
    }

    /// Refunds money whose movement was already posted. The money returns to the credits that paid, the last
    /// used first; money that returns to an expired credit expires with it. Then debts are paid.
    ///
    /// # Errors
    /// The database fails.
    pub async fn refund(&self, tx: &mut Tx, wallet: &mut Wallet, refund: Refund) -> Result<(), db::Error> {
        let organization_id = wallet.organization_id;
        let mut left = self.return_to_credits(tx, wallet, refund.month, refund.amount.units()).await?;
        for month in refund.earlier {
            if left > 0
                && let Some(mut invoice) = store::invoices::of_month(tx, organization_id, month).await?
                && invoice.status == Status::Open
            {
                let lowered = Nano::from_units(left.min(invoice.due.units()));
                self.reduce_due(tx, &mut invoice, lowered).await?;
                left -= lowered.units();
            }
            left = self.return_to_credits(tx, wallet, month, left).await?;
        }
        if left > 0 {
            let amount = Nano::from_units(left);
            let credit = Credit {
                id: CreditId::new(self.now, &self.billing.random),
                source: refund.source,
                reference: refund.reference,
                amount,
                remaining: amount,
                created_at: self.now,
                expires_at: None,
            };
            self.insert_credit(tx, wallet, &credit).await?;
        }
        self.pay_debts(tx, wallet, None).await
    }

    /// Returns an amount to the credits that paid for a month, the last used first. Returns the rest.
    async fn return_to_credits(
        &self,
        tx: &mut Tx,
        wallet: &mut Wallet,
        month: Month,
        amount: i128,
    ) -> Result<i128, db::Error> {
        if amount <= 0 {
            return Ok(amount);
        }
        let (organization_id, mut left) = (wallet.organization_id, amount);
        let mut uses = credits::uses(tx, organization_id, month).await?;
        uses.sort_by(|a, b| books::cmp_use_order(&b.credit, &a.credit));
        for used in uses {
            let back = left.min(used.amount.units());
            if back <= 0 {
                break;
            }
            left -= back;
            let back = Nano::from_units(back);
            let credit = used.credit;
            credits::subtract_use(tx, organization_id, month, credit.id, back).await?;
            if credit.is_expired(wallet.locked_at) {
                let part = CreditPart { credit_id: credit.id, amount: back, remaining: credit.remaining };
                self.expire_part(tx, wallet, part).await?;
                continue;
            }
            let remaining = Nano::from_units(credit.remaining.units() + back.units());
            credits::set_remaining(tx, credit.id, remaining).await?;
            wallet.note_expiry(credit.expires_at);
        }
        Ok(left)
    }

    /// Pays the debts of a wallet from its credits: the invoice `first`, then the oldest invoices, then usage
    /// that isn't billed yet.
    ///
    /// # Errors
    /// The database fails.
    pub async fn pay_debts(
        &self,
        tx: &mut Tx,
        wallet: &Wallet,
        first: Option<InvoiceId>,
    ) -> Result<(), db::Error> {
        let organization_id = wallet.organization_id;
        let mut left = credits::list_remaining(tx, organization_id).await?;
        let owed = books::owed(wallet.posted, &left);
        if owed == Nano::ZERO || left.iter().all(|credit| credit.is_expired(wallet.locked_at)) {
            return Ok(());
        }
        let mut open = store::invoices::open(tx, organization_id).await?;
        open.sort_by_key(|invoice| (Some(invoice.id) != first, invoice.month.unix_months()));
        let due: i128 = open.iter().map(|invoice| invoice.due.units()).sum();
        for invoice in &mut open {
            let paid = self.use_credits(tx, wallet, &mut left, invoice.month, invoice.due).await?;
            if paid > Nano::ZERO {
                self.reduce_due(tx, invoice, paid).await?;
            }
        }
        let not_billed = Nano::from_units(owed.units() - due);
        for (month, debt) in debts_of_open_months(tx, wallet, not_billed, &BTreeMap::new()).await? {
            self.use_credits(tx, wallet, &mut left, month, debt).await?;
        }
        Ok(())
    }

    /// Pays a debt of a month from credits. Returns the paid amount.
    async fn use_credits(
        &self,
        tx: &mut Tx,
        wallet: &Wallet,
        left: &mut [Credit],
        month: Month,
        debt: Nano,
    ) -> Result<Nano, db::Error> {
        let mut paid = 0;
        for part in books::charge(left, debt, Nano::ZERO, wallet.locked_at) {
            use_credit(tx, wallet.organization_id, month, part).await?;
            paid += part.amount.units();
            if let Some(credit) = left.iter_mut().find(|credit| credit.id == part.credit_id) {
                credit.remaining = part.remaining;
            }
        }
        Ok(Nano::from_units(paid))
    }

    /// Lowers the amount due of an open invoice. The invoice is paid once the amount reaches zero.
    ///
    /// # Errors
    /// The database fails.
    pub async fn reduce_due(
        &self,
        tx: &mut Tx,
        invoice: &mut Invoice,
        amount: Nano,
    ) -> Result<(), db::Error> {
        invoice.due = Nano::from_units(invoice.due.units() - amount.units());
        if invoice.due == Nano::ZERO {
            invoice.status = Status::Paid;
            invoice.paid_at = Some(self.now);
            self.record_event(tx, Action::InvoicePaid, &invoice.id.to_string(), invoice.organization_id)
                .await?;
            self.emit_invoice(tx, invoice, InvoiceChange::Paid).await?;
        }
        store::invoices::set_status(tx, invoice, self.now).await
    }

    /// Returns the debts of the months that aren't billed yet. `decreases` are the amounts by which daily
    /// rows were lowered, but which aren't posted yet.
    ///
    /// # Errors
    /// The database fails.
    pub async fn open_month_debts(
        &self,
        tx: &mut Tx,
        wallet: &Wallet,
        decreases: &BTreeMap<Month, Nano>,
    ) -> Result<BTreeMap<Month, Nano>, db::Error> {
        let left = credits::list_remaining(tx, wallet.organization_id).await?;
        let owed = books::owed(wallet.posted, &left);
        if owed == Nano::ZERO {
            return Ok(BTreeMap::new());
        }
        let open = store::invoices::open(tx, wallet.organization_id).await?;
        let due: i128 = open.iter().map(|invoice| invoice.due.units()).sum();
        debts_of_open_months(tx, wallet, Nano::from_units(owed.units() - due), decreases).await
    }

    /// Returns the debt of a month that isn't billed yet.
    ///
    /// # Errors
    /// The database fails.
    pub async fn debt_of_open_month(
        &self,
        tx: &mut Tx,
        wallet: &Wallet,
        month: Month,
    ) -> Result<Nano, db::Error> {
        let debts = self.open_month_debts(tx, wallet, &BTreeMap::new()).await?;
        Ok(debts.get(&month).copied().unwrap_or(Nano::ZERO))
    }

    /// Adds an entry to the audit trail.
    ///
    /// # Errors
    /// The database fails.
    pub async fn record_event(
        &self,
        tx: &mut Tx,
        action: Action,
        target: &str,
        organization_id: OrganizationId,
    ) -> Result<(), db::Error> {
        let event = Event { action, target: target.to_owned(), organization_id: Some(organization_id) };
        trail::record(tx, self.trail, &event, self.now, &self.billing.random).await
    }

    /// Adds an entry about an amount to the audit trail. The audit recounts amounts from these entries.
    ///
    /// # Errors
    /// The database fails.
    pub async fn record_amount(
        &self,
        tx: &mut Tx,
        (action, target): (Action, String),
        organization_id: OrganizationId,
        amount: Nano,
    ) -> Result<(), db::Error> {
        let event = Event { action, target, organization_id: Some(organization_id) };
        let detail = serde_json::json!({"amount": amount.to_string()});
        trail::record_with(tx, self.trail, &event, &detail, self.now, &self.billing.random).await
    }
}

/// Takes a part of a credit for an amount that was billed in a month.
async fn use_credit(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
    part: CreditPart,
) -> Result<(), db::Error> {
    credits::set_remaining(tx, part.credit_id, part.remaining).await?;
    credits::add_use(tx, organization_id, month, part.credit_id, part.amount).await
}
