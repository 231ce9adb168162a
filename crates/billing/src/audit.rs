//! The audit: checks every invariant of money and usage while the service runs.
//!
//! Each organization is read in its own snapshot: its figures are consistent while others write, and no
//! snapshot stays open for long. The invariants are in [`crate::rules::audit`]. [`crate::recount`] checks the
//! same books again with independent code.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::recount::{self, PriceList};
use crate::rules::audit::{
    self, Budgets, CreditRow, Deadline, Drift, Invariant, InvoicePayments, InvoiceRow, ItemRow, LedgerSums,
    MonthSums, NoteRow, RecordedSince, Uptime, Usage, UsageSums, WalletRow,
};
use crate::rules::invoicing::{self, Bill};
use crate::{Billing, store};
use catalog::PriceBook;
use db::Tx;
use kernel::clock::{Day, Month, Time};
use kernel::error::Error;
use kernel::ids::OrganizationId;

/// Maximum number of rows that one statement reads.
const ROWS_AT_ONCE: i64 = 2_000;

/// The result of an audit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    pub checked: Checked,
    /// The violations that were found.
    pub drifts: Vec<Drift>,
}

/// The numbers of rows that were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Checked {
    /// Organizations, including deleted ones.
    pub organizations: u64,
    /// Ledger transactions.
    pub movements: u64,
    pub credits: u64,
    pub reservations: u64,
    /// Daily rows of usage.
    pub daily_rows: u64,
    pub events: u64,
    pub invoices: u64,
}

/// Checks the books of one organization, or those of all organizations and the numbers of invoices and credit
/// notes.
///
/// # Errors
/// The database can't be read. A drift isn't an error.
pub async fn check(billing: &Billing, organization: Option<OrganizationId>) -> Result<Report, Error> {
    let mut report = Report::default();
    if let Some(id) = organization {
        check_one(billing, &id.to_string(), &mut report).await?;
        return Ok(report);
    }
    let mut full_audit = FullAudit::default();
    while full_audit.check_next(billing).await? {}
    full_audit.finish(billing).await
}

/// Checks the books of one organization. Returns `None` if the organization never existed.
///
/// # Errors
/// The database can't be read. A drift isn't an error.
pub async fn check_organization(billing: &Billing, id: OrganizationId) -> Result<Option<Report>, Error> {
    let has_wallet = store::wallets::get(&mut billing.db().read().await?, id).await?.is_some();
    let report = check(billing, Some(id)).await?;
    // An organization without a wallet or any other rows doesn't exist. A missing wallet alone is a drift.
    let is_empty = Checked { organizations: 0, ..report.checked } == Checked::default();
    if has_wallet || !is_empty {
        return Ok(Some(report));
    }
    let organization = tenants::store::organizations::detail(&mut billing.db().read().await?, id).await?;
    Ok(organization.map(|_| report))
}

/// A check of all organizations, one at a time, so that the caller can pause in between.
#[derive(Debug, Default)]
pub struct FullAudit {
    after: String,
    report: Report,
}

impl FullAudit {
    /// Checks the books of the next organization. Returns `false` if no organization is left.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn check_next(&mut self, billing: &Billing) -> Result<bool, Error> {
        let next = store::audit::next_organization(&mut billing.db().read().await?, &self.after).await?;
        let Some(id) = next else { return Ok(false) };
        check_one(billing, &id, &mut self.report).await?;
        self.after = id;
        Ok(true)
    }

    /// Checks the numbers of invoices and credit notes, which all organizations share.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn finish(mut self, billing: &Billing) -> Result<Report, Error> {
        let mut tx = billing.db().read().await?;
        // Each of these reads is a single statement, and therefore consistent.
        let invoices = (Invariant::InvoiceNumber, store::audit::numbers(&mut tx).await?);
        let notes = (Invariant::CreditNoteNumber, store::audit::note_numbers(&mut tx).await?);
        // Findings about objects at the payment processor that belong to no organization.
        self.report.drifts.extend(audit::findings(&store::audit::findings(&mut tx, "").await?));
        for (what, numbers) in [invoices, notes] {
            let drift = audit::numbers(what, numbers.count, numbers.first, numbers.last, numbers.given);
            self.report.drifts.extend(drift);
        }
        Ok(self.report)
    }
}

async fn check_one(billing: &Billing, id: &str, report: &mut Report) -> Result<(), Error> {
    let mut tx = billing.db().snapshot().await?;
    let prices = catalog::store::prices::book(&mut tx).await?;
    let since = RecordedSince(store::audit::recorded_since(&mut tx).await?);
    let clock = cluster::store::service_clock::get(&mut tx).await?;
    let uptime = clock.map(|clock| Uptime { since: clock.up_since_at, until: clock.last_seen_at });
    let now = billing.clock.now();
    let (checked, drifts) = (&mut report.checked, Vec::new());
    let budgets = Budgets::new(id, store::audit::budgets(&mut tx, id).await?);
    let days = BTreeMap::new();
    let mut one =
        Organization { tx: &mut tx, id, prices, since, uptime, now, budgets, days, checked, drifts };
    let (ledger, usage) = (one.ledger().await?, one.usage().await?);
    one.wallet(&ledger, &usage).await?;
    one.payments(&ledger).await?;
    one.budgets().await?;
    one.call_log(billing).await?;
    let mut drifts = one.drifts;
    let list = PriceList::read(&mut tx).await?;
    drifts.extend(recount::organization(&mut tx, id, &list, now).await?);
    tx.commit().await?;
    report.checked.organizations += 1;
    report
        .drifts
        .extend(drifts.into_iter().map(|drift| Drift { organization_id: Some(id.to_owned()), ..drift }));
    Ok(())
}

/// The audit of one organization.
struct Organization<'a> {
    tx: &'a mut Tx,
    id: &'a str,
    prices: PriceBook,
    since: RecordedSince,
    uptime: Option<Uptime>,
    now: Time,
    budgets: Budgets,
    /// The usage of the last days.
    days: BTreeMap<Day, UsageSums>,
    checked: &'a mut Checked,
    drifts: Vec<Drift>,
}

impl Organization<'_> {
    /// Checks every ledger transaction, in slices, and returns their sums.
    async fn ledger(&mut self) -> Result<LedgerSums, Error> {
        let mut sums = LedgerSums::default();
        let mut after = String::new();
        loop {
            let slice = store::audit::movements(self.tx, self.id, &after, ROWS_AT_ONCE).await?;
            let Some(last) = slice.last() else { return Ok(sums) };
            after.clone_from(&last.idempotency_key);
            for movement in &slice {
                self.checked.movements += 1;
                self.drifts.extend(audit::ledger_transaction(movement));
                sums.add(movement);
            }
        }
    }

    /// Checks every daily row, every sum and total of daily rows and every event, in slices, and returns the
    /// usage.
    async fn usage(&mut self) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        let mut slice = store::audit::daily(self.tx, self.id, None, ROWS_AT_ONCE).await?;
        while let Some(last) = slice.last().cloned() {
            for row in slice {
                self.checked.daily_rows += 1;
                self.budgets.usage(&row.key, row.sums.amount);
                if row.key.day >= self.now.day().plus(-1) {
                    self.days.entry(row.key.day).or_default().add(row.sums);
                }
                self.drifts.extend(usage.daily(row));
            }
            slice = store::audit::daily(self.tx, self.id, Some(&last), ROWS_AT_ONCE).await?;
        }
        let mut slice = store::audit::daily_parts(self.tx, self.id, None, ROWS_AT_ONCE).await?;
        while let Some(last) = slice.last().cloned() {
            for row in slice {
                usage.daily_parts(row.key, row.parts);
            }
            slice = store::audit::daily_parts(self.tx, self.id, Some(&last), ROWS_AT_ONCE).await?;
        }
        let mut slice = store::audit::sums(self.tx, self.id, None, ROWS_AT_ONCE).await?;
        while let Some(last) = slice.last() {
            self.drifts.extend(slice.iter().flat_map(|row| usage.sum(row)));
            slice = store::audit::sums(self.tx, self.id, Some(&last.key), ROWS_AT_ONCE).await?;
        }
        self.drifts.extend(usage.missing_sums());
        let mut slice = store::audit::totals(self.tx, self.id, "", ROWS_AT_ONCE).await?;
        while let Some(last) = slice.last() {
            self.drifts.extend(slice.iter().filter_map(|row| usage.total(row)));
            slice = store::audit::totals(self.tx, self.id, &last.subject_id, ROWS_AT_ONCE).await?;
        }
        self.drifts.extend(usage.missing_totals());
        let mut slice = store::audit::events(self.tx, self.id, None, ROWS_AT_ONCE).await?;
        while let Some(last) = slice.last().cloned() {
            for event in slice {
                self.checked.events += 1;
                self.drifts.extend(audit::event(&event, &self.prices));
                self.drifts.extend(usage.event(&event));
            }
            slice = store::audit::events(self.tx, self.id, Some(&last), ROWS_AT_ONCE).await?;
        }
        for (booked, posted) in store::audit::credited(self.tx, self.id).await? {
            usage.subtract_credit_notes(booked, posted);
        }
        let from = store::audit::events_gone_before(self.tx).await?;
        self.drifts.extend(usage.finish(from));
        Ok(usage)
    }

    /// Checks the wallet with its reservations, credits, invoices and credit notes.
    async fn wallet(&mut self, ledger: &LedgerSums, usage: &Usage) -> Result<(), Error> {
        let wallet = store::audit::wallet(self.tx, self.id).await?;
        let (reservations, reserved) = store::audit::reserved(self.tx, self.id).await?;
        self.checked.reservations += u64::try_from(reservations).unwrap_or(0);
        let wallet_drifts = audit::wallet(wallet.as_ref(), ledger, reserved.units(), usage.posted_total());
        self.drifts.extend(wallet_drifts);

        let credits = store::audit::credits(self.tx, self.id).await?;
        let uses = store::audit::credit_uses(self.tx, self.id).await?;
        self.checked.credits += u64::try_from(credits.len()).unwrap_or(0);
        self.drifts.extend(audit::credit_remainders(&credits, &uses, ledger, self.since));

        let mut invoices = store::audit::invoices(self.tx, self.id).await?;
        let items = store::audit::invoice_items(self.tx, self.id).await?;
        for invoice in &mut invoices {
            invoice.carry_over(&items);
        }
        self.checked.invoices += u64::try_from(invoices.len()).unwrap_or(0);
        for invoice in &invoices {
            self.drifts.extend(audit::invoice(invoice, &items));
        }
        self.recompute(&invoices, &items).await?;
        self.drifts.extend(audit::void_invoices(&invoices, ledger));
        let open_month = wallet.as_ref().map(|wallet| wallet.open_month);
        let sums = MonthSums { posted: usage.posted(), ledger, open_month };
        self.drifts.extend(audit::invoice_months(&invoices, sums));

        let notes = store::audit::credit_notes(self.tx, self.id).await?;
        let note_items = store::audit::credit_note_items(self.tx, self.id).await?;
        let credited = store::audit::credited_amounts(self.tx, self.id).await?;
        self.drifts.extend(audit::credit_notes(&notes, &note_items, &credited, &invoices));
        self.drifts.extend(audit::credit_note_sums(&notes, &credited, &invoices, usage.credited(), ledger));
        if let Some(wallet) = &wallet {
            let paid = InvoicePayments { uses: &uses, notes: &notes, invoices: &invoices, ledger };
            let exact = |invoice: &&InvoiceRow| {
                self.since.covers(wallet.created_at) || self.since.covers(invoice.month.start())
            };
            for invoice in invoices.iter().filter(exact) {
                self.drifts.extend(audit::invoice_payments(invoice, paid));
                self.drifts.extend(audit::brought_forward(invoice, paid));
            }
            self.debts(wallet, &credits, &invoices, (&notes, ledger)).await?;
            self.deadlines(wallet, &credits).await?;
        }
        Ok(())
    }

    /// Checks the payments, and adds the findings of the last comparison with the payment processor.
    async fn payments(&mut self, ledger: &LedgerSums) -> Result<(), Error> {
        let rows = store::audit::payments(self.tx, self.id).await?;
        self.drifts.extend(audit::payments(&rows, ledger));
        self.drifts.extend(audit::returned(&rows));
        self.drifts.extend(audit::findings(&store::audit::findings(self.tx, self.id).await?));
        Ok(())
    }

    /// Checks the spent and reserved amounts of the budgets. The daily rows were already added.
    async fn budgets(&mut self) -> Result<(), Error> {
        for row in store::audit::reserved_by_caller(self.tx, self.id).await? {
            self.budgets.reservation(&row);
        }
        for id in self.budgets.ids() {
            let stored = store::audit::budget_uses(self.tx, &id).await?;
            self.drifts.extend(self.budgets.spent(&id, &stored));
        }
        let wallet = store::audit::wallet(self.tx, self.id).await?;
        self.drifts.extend(self.budgets.finish(wallet.map(|wallet| wallet.budgets)));
        Ok(())
    }

    /// Compares the calls of the last full day in the call log with the daily rows. Calls that were made
    /// before the log began are left out.
    async fn call_log(&mut self, billing: &Billing) -> Result<(), Error> {
        let Some((day, logged)) = billing.call_log.last_day(self.tx, self.id).await? else { return Ok(()) };
        let used = self.days.get(&day).copied().unwrap_or_default();
        let logged = UsageSums {
            requests: logged.requests.into(),
            prompt_tokens: logged.prompt_tokens.into(),
            completion_tokens: logged.completion_tokens.into(),
            amount: logged.amount,
            ..UsageSums::default()
        };
        self.drifts.extend(audit::call_log(day, used, logged));
        Ok(())
    }

    /// Recomputes the lines of invoices from the daily rows. Invoices of earlier versions, which followed
    /// other rules, are skipped.
    async fn recompute(&mut self, invoices: &[InvoiceRow], items: &[ItemRow]) -> Result<(), Error> {
        // An invalid id wasn't made by this service, so it has no invoices.
        let Some(id) = OrganizationId::parse(self.id) else { return Ok(()) };
        let since = self.since;
        for invoice in invoices.iter().filter(|invoice| since.covers(invoice.finalized_at)) {
            let bill = self.bill(id, invoice.month).await?;
            self.drifts.extend(audit::recomputed(invoice, items, bill.as_ref()));
        }
        Ok(())
    }

    /// Returns the bill of a closed month as of its closing; `None` if a sum overflows.
    async fn bill(&mut self, id: OrganizationId, month: Month) -> Result<Option<Bill>, Error> {
        let used = store::months::billed(self.tx, id, month).await?;
        let late = used.iter().map(|used| used.day.month()).filter(|of| *of != month).collect();
        let before = store::months::billed_before(self.tx, id, &late, month).await?;
        Ok(invoicing::bill(month, &used, &before, &self.prices))
    }

    /// Checks the debts and the amounts due of invoices.
    async fn debts(
        &mut self,
        wallet: &WalletRow,
        credits: &[CreditRow],
        invoices: &[InvoiceRow],
        notes: (&[NoteRow], &LedgerSums),
    ) -> Result<(), Error> {
        self.drifts.extend(audit::credits(credits, wallet.posted, self.now));
        self.drifts.extend(audit::invoice_dues(invoices, wallet.posted, credits));
        if self.since.covers(wallet.created_at) {
            let open = Month::from_unix_months(wallet.open_month);
            let unpaid = store::months::charges_from(self.tx, self.id, open).await?;
            let unpaid: Vec<_> = unpaid.iter().map(|charged| (charged.month, charged.unpaid)).collect();
            let owner = (wallet.posted, wallet.open_month);
            self.drifts.extend(audit::unbilled(owner, invoices, credits, &unpaid, notes));
        }
        let of_prices = store::audit::currency(self.tx).await?;
        self.drifts.extend(audit::currencies(&wallet.currency, of_prices.as_deref(), invoices));
        Ok(())
    }

    /// Checks for reservations, credits and an open month that should have ended.
    async fn deadlines(&mut self, wallet: &WalletRow, credits: &[CreditRow]) -> Result<(), Error> {
        let WalletRow { open_month, is_deleted, .. } = *wallet;
        self.drifts.extend(audit::open_month(open_month, is_deleted, self.now, self.uptime));
        let Some(uptime) = self.uptime else { return Ok(()) };
        let oldest = store::audit::oldest_reservation(self.tx, self.id).await?;
        let is_expired = |one: &Deadline| audit::ended_in_time(Invariant::ReservationOver, one, uptime);
        self.drifts.extend(oldest.as_ref().and_then(is_expired));
        // Expired credits are kept while money is reserved.
        if wallet.reserved.units() > 0 {
            return Ok(());
        }
        for credit in credits.iter().filter(|credit| credit.remaining.units() > 0) {
            let deadlines = credit.expires_at.map(|at| Deadline { id: credit.id.clone(), at });
            self.drifts
                .extend(deadlines.and_then(|one| audit::ended_in_time(Invariant::CreditOver, &one, uptime)));
        }
        Ok(())
    }
}

impl Report {
    /// Returns `true` if no drift was found.
    pub fn is_clean(&self) -> bool {
        self.drifts.is_empty()
    }
}
