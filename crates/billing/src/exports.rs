//! The charges of organizations in a billing month, in the form of FOCUS
//! (docs/contract/billing.md#focus-export).
//!
//! An [`Export`] is read piece by piece, so that no file is kept in memory. [`folder`] writes the files of
//! `exports.folder`.

pub mod folder;

use std::collections::{BTreeMap, VecDeque};

use catalog::PriceBook;
use db::Tx;
use kernel::clock::{Day, Month};
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::money::Nano;

use crate::bookkeeping::closing;
use crate::rules::focus::invoice_details::{Document, InvoiceDetails};
use crate::rules::focus::usage::NamedUsage;
use crate::rules::focus::{Account, Charge, DEFAULT_PROVIDER, documents, usage};
use crate::rules::invoicing::{BilledUsage, GRACE_MS, Item};
use crate::store::invoices::Invoice;
use crate::store::wallets::WalletOverview;
use crate::{Billing, store};

pub use crate::rules::focus::billing_period::BillingPeriod;
pub use crate::rules::focus::{Dataset, Form, Version};

/// Maximum number of daily rows that become charges at a time.
const PIECE_ROWS: usize = 256;

/// The database that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Primary,
    /// The standby, if any; its data may be seconds old.
    Standby,
}

impl Source {
    async fn read(self, billing: &Billing) -> Result<Tx, db::Error> {
        match self {
            Self::Primary => billing.db().read().await,
            Self::Standby => billing.db().reports().await,
        }
    }
}

/// The charges of one organization in a month. An open month has the charges that it would have if it were
/// closed now.
pub struct Export {
    billing: Billing,
    source: Source,
    form: Form,
    account: Account,
    period: BillingPeriod,
    prices: PriceBook,
    /// The id of the month's invoice.
    document: Option<String>,
    /// The month's invoice, its credit notes and the invoices that became void in it, by id.
    documents: BTreeMap<String, Document>,
    /// Charges that aren't in daily rows; they come first.
    others: Vec<Charge>,
    /// The usage that credit notes took back while the month was open.
    credited: Vec<BilledUsage>,
    days: VecDeque<Day>,
    /// Rows of the day that was read last.
    rows: VecDeque<NamedUsage>,
    /// `true` once a dataset that consists of a single piece was returned.
    is_complete: bool,
}

impl Export {
    /// Begins the export of an organization, which may have been deleted.
    ///
    /// # Errors
    /// 404 for an unknown organization; the database fails, or a sum overflows.
    pub async fn begin(
        billing: &Billing,
        source: Source,
        organization_id: OrganizationId,
        month: Month,
        form: Form,
    ) -> Result<Self, Error> {
        let mut tx = source.read(billing).await?;
        // The open month is read before the invoice: a month that is open now may be closed when the invoice
        // is read, but not the other way around.
        let overview = store::wallets::overview(&mut tx, organization_id).await?;
        let overview = overview.ok_or(Code::OrganizationNotFound)?;
        let invoice = store::invoices::of_month(&mut tx, organization_id, month).await?;
        let prices = catalog::store::prices::book(&mut tx).await?;
        let account = account(billing, &overview, invoice.as_ref(), month);
        let document = invoice.as_ref().map(|invoice| invoice.id.to_string());
        let items = match &invoice {
            Some(invoice) => items(&mut tx, invoice).await?,
            None if month < overview.wallet.open_month => Vec::new(),
            None => preview(&mut tx, organization_id, month).await?,
        };
        let lines = items.iter();
        let mut others: Vec<Charge> =
            lines.filter_map(|item| documents::of_invoice(item, month, document.as_deref())).collect();
        let own = invoice.iter().map(|invoice| (invoice.id.to_string(), invoice_document(invoice)));
        let mut documents: BTreeMap<_, _> = own.collect();
        others.extend(of_credit_notes(&mut tx, organization_id, month, &mut documents).await?);
        others.extend(of_void_invoices(&mut tx, organization_id, month, &mut documents).await?);
        let period = billing_period(&account, &overview, invoice.as_ref());
        let credited = store::months::credited_in(&mut tx, organization_id, month).await?;
        let days = store::usage::charges::days(&mut tx, organization_id, month).await?;
        let (billing, days, rows) = (billing.clone(), days.into(), VecDeque::new());
        Ok(Self {
            billing,
            source,
            form,
            account,
            period,
            prices,
            document,
            documents,
            others,
            credited,
            days,
            rows,
            is_complete: false,
        })
    }

    /// Returns the billing period.
    pub const fn billing_period(&self) -> &BillingPeriod {
        &self.period
    }

    /// Returns the next charges, at least one; `None` after the last.
    ///
    /// # Errors
    /// The database fails, or a sum overflows.
    pub async fn next_charges(&mut self) -> Result<Option<Vec<Charge>>, Error> {
        if !self.others.is_empty() || !self.credited.is_empty() {
            let mut charges = std::mem::take(&mut self.others);
            for credited in std::mem::take(&mut self.credited) {
                let month = self.account.month;
                let of = usage::on_credit_notes(&credited, month, self.document.as_deref(), &self.prices);
                charges.extend(of.ok_or_else(|| self.out_of_range())?);
            }
            if !charges.is_empty() {
                return Ok(Some(charges));
            }
        }
        loop {
            while self.rows.is_empty() {
                let Some(day) = self.days.pop_front() else { return Ok(None) };
                self.rows = self.read_day(day).await?;
            }
            let rows: Vec<_> = self.rows.drain(..self.rows.len().min(PIECE_ROWS)).collect();
            let mut charges = Vec::with_capacity(2 * rows.len());
            for row in &rows {
                let of = usage::of_row(row, self.account.month, self.document.as_deref(), &self.prices);
                charges.extend(of.ok_or_else(|| self.out_of_range())?);
            }
            // A row whose usage was taken back has no charge.
            if !charges.is_empty() {
                return Ok(Some(charges));
            }
        }
    }

    /// Appends a charge of this export to a string, as a line of CSV.
    pub fn add_line(&self, charge: &Charge, text: &mut String) {
        charge.add_to(text, &self.account, self.form.version());
    }

    /// Returns the next CSV lines of the dataset; `None` after the last.
    ///
    /// # Errors
    /// The errors of [`Export::next_charges`].
    pub async fn next_lines(&mut self) -> Result<Option<String>, Error> {
        match self.form.dataset() {
            Dataset::CostAndUsage => {
                let charges = self.next_charges().await?;
                Ok(charges.map(|charges| {
                    let mut text = String::new();
                    charges.iter().for_each(|charge| self.add_line(charge, &mut text));
                    text
                }))
            }
            _ if std::mem::replace(&mut self.is_complete, true) => Ok(None),
            Dataset::InvoiceDetail => self.invoice_lines().await.map(Some),
            Dataset::BillingPeriod => Ok(Some(self.period.line())),
        }
    }

    /// Returns the lines of the documents. This reads all charges.
    async fn invoice_lines(&mut self) -> Result<String, Error> {
        let mut details = InvoiceDetails::new(self.account.month);
        while let Some(charges) = self.next_charges().await? {
            for charge in charges {
                details.add(charge).ok_or_else(|| self.out_of_range())?;
            }
        }
        Ok(details.lines(&self.account, &self.documents))
    }

    async fn read_day(&self, day: Day) -> Result<VecDeque<NamedUsage>, Error> {
        let mut tx = self.source.read(&self.billing).await?;
        let Account { organization_id, month, .. } = self.account;
        Ok(store::usage::charges::of_day(&mut tx, organization_id, day, month).await?.into())
    }

    fn out_of_range(&self) -> Error {
        Error::internal(format!("the charges of {} are out of range", self.account.month))
    }
}

fn account(billing: &Billing, overview: &WalletOverview, invoice: Option<&Invoice>, month: Month) -> Account {
    let organization_id = overview.wallet.organization_id;
    let provider = billing.settings.issuer_name.as_deref().unwrap_or(DEFAULT_PROVIDER);
    let invoiced_name = invoice.map(|invoice| invoice.organization_name.clone());
    let name = invoiced_name.or_else(|| overview.name.clone());
    let issuer = invoice.and_then(|invoice| invoice.issuer.name.as_deref()).unwrap_or(provider);
    Account {
        organization_id,
        organization_name: name.unwrap_or_else(|| organization_id.to_string()),
        currency: overview.wallet.currency.clone(),
        month,
        provider: provider.to_owned(),
        issuer: issuer.to_owned(),
    }
}

/// Returns the billing period of an organization. A month without an invoice counts as closed at the earliest
/// possible time.
fn billing_period(account: &Account, overview: &WalletOverview, invoice: Option<&Invoice>) -> BillingPeriod {
    let Account { organization_id, month, issuer, .. } = account;
    let could_close_at = month.plus(1).start().plus_ms(GRACE_MS);
    let closed_at = invoice.map_or(could_close_at, |invoice| invoice.finalized_at);
    BillingPeriod {
        month: *month,
        issuer: issuer.clone(),
        created_at: month.start().max(organization_id.created_at()),
        closed_at: (*month < overview.wallet.open_month).then_some(closed_at),
    }
}

fn invoice_document(invoice: &Invoice) -> Document {
    Document { issued_at: invoice.finalized_at, voided_at: invoice.voided_at, reference: None }
}

async fn items(tx: &mut Tx, invoice: &Invoice) -> Result<Vec<Item>, Error> {
    let invoices = std::slice::from_ref(invoice);
    Ok(store::invoices::items(tx, invoice.organization_id, invoices).await?.pop().unwrap_or_default())
}

/// Returns the lines of the invoice that an open month would have now.
async fn preview(tx: &mut Tx, organization_id: OrganizationId, month: Month) -> Result<Vec<Item>, Error> {
    let used = store::months::billed(tx, organization_id, month).await?;
    Ok(closing::bill(tx, organization_id, month, &used).await?.items)
}

/// Returns the charges of the credit notes that were made while the month was open, and adds the notes to
/// `documents`.
async fn of_credit_notes(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
    documents: &mut BTreeMap<String, Document>,
) -> Result<Vec<Charge>, Error> {
    let notes = store::credit_notes::booked_in(tx, organization_id, month).await?;
    documents.extend(notes.iter().map(|(note, _)| {
        let reference = Some(note.invoice_id.to_string());
        (note.id.to_string(), Document { issued_at: note.created_at, voided_at: None, reference })
    }));
    let lines = notes.iter().flat_map(|(note, items)| {
        let document = note.id.to_string();
        items.iter().map(move |item| documents::of_credit_note(item, note.month, &document))
    });
    Ok(lines.collect())
}

/// Returns the charges that cancel the invoices that became void in the month, and adds the invoices to
/// `documents`.
async fn of_void_invoices(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
    documents: &mut BTreeMap<String, Document>,
) -> Result<Vec<Charge>, Error> {
    let mut charges = Vec::new();
    for invoice in store::invoices::voided_in(tx, organization_id, month).await? {
        let noted = store::credit_notes::sum_of_month(tx, organization_id, invoice.month).await?;
        let left = Nano::from_units(invoice.amount.units() - noted.units());
        let left = left.to_pico().ok_or_else(|| Error::internal("an invoice is out of range"))?;
        let id = invoice.id.to_string();
        documents.insert(id.clone(), invoice_document(&invoice));
        charges.push(documents::of_void_invoice(invoice.number, &id, invoice.month, left));
    }
    Ok(charges)
}

/// The charges of all organizations in a month, including deleted ones, in the order of their creation.
pub struct AllExports {
    billing: Billing,
    source: Source,
    month: Month,
    form: Form,
    after: Option<OrganizationId>,
    waiting: VecDeque<OrganizationId>,
}

impl AllExports {
    /// The number of organizations that one statement looks up.
    const PAGE_SIZE: i64 = 100;

    pub fn begin(billing: &Billing, source: Source, month: Month, form: Form) -> Self {
        Self { billing: billing.clone(), source, month, form, after: None, waiting: VecDeque::new() }
    }

    /// Begins the export of the next organization; `None` after the last.
    ///
    /// # Errors
    /// The errors of [`Export::begin`].
    pub async fn next_export(&mut self) -> Result<Option<Export>, Error> {
        if self.waiting.is_empty() {
            let mut tx = self.source.read(&self.billing).await?;
            let page = store::wallets::overviews(&mut tx, self.after, Self::PAGE_SIZE).await?;
            self.waiting = page.iter().map(|overview| overview.wallet.organization_id).collect();
            self.after = self.waiting.back().copied();
        }
        let Some(organization_id) = self.waiting.pop_front() else { return Ok(None) };
        Export::begin(&self.billing, self.source, organization_id, self.month, self.form).await.map(Some)
    }
}
