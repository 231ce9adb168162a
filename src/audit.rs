//! The audit: every invariant of money and usage, checked beside the running service.
//!
//! Each organization is read in a snapshot of its own, so that its figures belong together while others go on writing, and no
//! snapshot is held for long. What must hold is in [`crate::rules::audit`].

use serde::Serialize;

use crate::app::App;
use crate::db::Tx;
use crate::error::Error;
use crate::ids::OrganizationId;
use crate::rules::audit::{self, Drift, LedgerSums, MonthSums, Usage, What};
use crate::store;

/// Rows that one statement reads.
const SLICE: i64 = 2_000;

/// What was checked, and what isn't as it must be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// What was looked at.
    pub checked: Checked,
    /// Empty when everything is as it must be.
    pub drifts: Vec<Drift>,
}

/// How many rows were looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Checked {
    /// Organizations, those included that are deleted.
    pub organizations: u64,
    /// Movements of money.
    pub movements: u64,
    /// Credits.
    pub credits: u64,
    /// Reservations.
    pub reservations: u64,
    /// Daily rows of usage.
    pub daily_rows: u64,
    /// Usage events.
    pub events: u64,
    /// Invoices.
    pub invoices: u64,
}

/// Checks the books of one organization, or of all and the numbers of invoices besides.
///
/// # Errors
/// The database can't be read. A drift is none.
pub async fn check(app: &App, organization: Option<OrganizationId>) -> Result<Report, Error> {
    let mut report = Report::default();
    if let Some(id) = organization {
        check_one(app, &id.to_string(), &mut report).await?;
        return Ok(report);
    }
    let mut walk = Walk::default();
    while walk.next(app).await? {}
    walk.finish(app).await
}

/// A check of all organizations, one at a time, for those who want to rest in between.
#[derive(Debug, Default)]
pub struct Walk {
    /// The organization that was checked last.
    after: String,
    report: Report,
}

impl Walk {
    /// Checks the books of the next organization; false when there is none.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn next(&mut self, app: &App) -> Result<bool, Error> {
        let next = store::audit::next_organization(&mut app.db.read().await?, &self.after).await?;
        let Some(id) = next else { return Ok(false) };
        check_one(app, &id, &mut self.report).await?;
        self.after = id;
        Ok(true)
    }

    /// Checks what all have in common: the numbers of invoices.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn finish(mut self, app: &App) -> Result<Report, Error> {
        // One statement, which sees one moment.
        let numbers = store::audit::numbers(&mut app.db.read().await?).await?;
        let drifts = audit::numbers(numbers.count, numbers.first, numbers.last, numbers.given);
        self.report.drifts.extend(drifts);
        Ok(self.report)
    }
}

async fn check_one(app: &App, id: &str, report: &mut Report) -> Result<(), Error> {
    let mut tx = app.db.snapshot().await?;
    let mut one = Organization { tx: &mut tx, id, checked: &mut report.checked, drifts: Vec::new() };
    let (ledger, usage) = (one.ledger().await?, one.usage().await?);
    one.wallet(app, &ledger, &usage).await?;
    let drifts = one.drifts;
    tx.commit().await?;
    report.checked.organizations += 1;
    report
        .drifts
        .extend(drifts.into_iter().map(|drift| Drift { organization_id: Some(id.to_owned()), ..drift }));
    Ok(())
}

/// One organization under audit.
struct Organization<'a> {
    tx: &'a mut Tx,
    id: &'a str,
    checked: &'a mut Checked,
    drifts: Vec<Drift>,
}

impl Organization<'_> {
    /// Every movement, in slices.
    async fn ledger(&mut self) -> Result<LedgerSums, Error> {
        let mut sums = LedgerSums::default();
        let mut after = String::new();
        loop {
            let slice = store::audit::movements(self.tx, self.id, &after, SLICE).await?;
            let Some(last) = slice.last() else { return Ok(sums) };
            after.clone_from(&last.idempotency_key);
            for movement in &slice {
                self.checked.movements += 1;
                self.drifts.extend(audit::ledger(movement));
                sums.add(movement);
            }
        }
    }

    /// Every daily row and every event, in slices.
    async fn usage(&mut self) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        let mut slice = store::audit::daily(self.tx, self.id, None, SLICE).await?;
        while let Some(last) = slice.last().cloned() {
            for row in slice {
                self.checked.daily_rows += 1;
                self.drifts.extend(usage.daily(row));
            }
            slice = store::audit::daily(self.tx, self.id, Some(&last), SLICE).await?;
        }
        let mut slice = store::audit::events(self.tx, self.id, None, SLICE).await?;
        while let Some(last) = slice.last().cloned() {
            for event in slice {
                self.checked.events += 1;
                usage.event(event);
            }
            slice = store::audit::events(self.tx, self.id, Some(&last), SLICE).await?;
        }
        for (booked, posted) in store::audit::credited(self.tx, self.id).await? {
            usage.without_credited(booked, posted);
        }
        let from = store::audit::events_gone_before(self.tx).await?;
        self.drifts.extend(usage.finish(from));
        Ok(usage)
    }

    /// What hangs on the wallet: reservations, credits, invoices.
    async fn wallet(&mut self, app: &App, ledger: &LedgerSums, usage: &Usage) -> Result<(), Error> {
        let wallet = store::audit::wallet(self.tx, self.id).await?;
        let (reservations, reserved) = store::audit::reserved(self.tx, self.id).await?;
        self.checked.reservations += u64::try_from(reservations).unwrap_or(0);
        let wallet_drifts = audit::wallet(wallet.as_ref(), ledger, reserved.units(), usage.posted_in_all());
        self.drifts.extend(wallet_drifts);

        let credits = store::audit::credits(self.tx, self.id).await?;
        self.checked.credits += u64::try_from(credits.len()).unwrap_or(0);
        if let Some(wallet) = &wallet {
            self.drifts.extend(audit::credits(&credits, wallet.posted, app.clock.now()));
        }

        let mut invoices = store::audit::invoices(self.tx, self.id).await?;
        let items = store::audit::invoice_items(self.tx, self.id).await?;
        for invoice in &mut invoices {
            invoice.carry_over(&items);
        }
        self.checked.invoices += u64::try_from(invoices.len()).unwrap_or(0);
        for invoice in &invoices {
            self.drifts.extend(audit::invoice(invoice, &items));
        }
        if let Some(wallet) = &wallet {
            self.drifts.extend(audit::dues(&invoices, wallet.posted, &credits));
        }
        self.drifts.extend(audit::voids(&invoices, ledger));
        let open_month = wallet.map(|wallet| wallet.open_month);
        let sums = MonthSums { posted: usage.posted(), ledger, open_month };
        self.drifts.extend(audit::months(&invoices, sums));
        Ok(())
    }
}

impl Report {
    /// Whether everything is as it must be.
    pub fn is_clean(&self) -> bool {
        self.drifts.is_empty()
    }

    /// The rules that are broken, for those who only want to know whether it is the expected ones.
    pub fn whats(&self) -> Vec<What> {
        self.drifts.iter().map(|drift| drift.what).collect()
    }
}
