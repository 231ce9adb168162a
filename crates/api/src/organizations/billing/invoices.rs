//! `/v1/organizations/{organization_id}/billing/invoices` and `…/{invoice_id}`
//! (docs/contract/billing.md#list-invoices).

use http::{HeaderValue, Response, header};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use crate::Api;
use crate::accept::{self, Negotiated};
use crate::gate::{Call, InvoiceScope};
use crate::invoice_page::{CONTENT_SECURITY_POLICY, PrintableInvoice};
use crate::paging::{PageInfo, PageQuery};
use billing::Billing;
use billing::invoices::{self, Document, Page};
use billing::rules::invoicing::{Item, Status};
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::one_of;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{CreditNoteId, InvoiceId};
use kernel::money::{Nano, Pico};
use tenants::access::OrgScope;
use web::input::{Description, Input, Query};
use web::reply::{self, Body, Enveloped, Reply, private};
use web::route::Operation;

/// An invoice's status as a query parameter.
struct StatusParameter(Status);

impl Field for StatusParameter {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Status::ALL).map(Self)
    }
    fn schema() -> serde_json::Value {
        let words: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
        serde_json::json!({"type": "string", "title": "InvoiceStatus", "enum": words, "examples": ["open"]})
    }
}

/// The filters of a list of invoices.
#[derive(Clone, Copy, Debug)]
pub struct InvoiceQuery {
    pub page: Page,
    /// Only invoices with this status.
    pub status: Option<Status>,
}

impl Record<Api> for InvoiceQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let status: Option<Option<StatusParameter>> = fields.described("The state.").optional("status");
        let status = status?.map(|StatusParameter(status)| status);
        Some(Self { page: page?.0, status })
    }
}

/// The invoice of a month.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Invoice {
    /// The invoice's id.
    id: InvoiceId,
    /// The number, consecutive over all invoices of the service, without gaps.
    number: i64,
    /// The start of the month.
    period_start: Time,
    /// The end of the month, exclusive.
    period_end: Time,
    amount: Nano,
    /// An earlier debt that is on no other invoice and must be paid with this invoice. It isn't charged
    /// again.
    balance_brought_forward: Nano,
    /// The unpaid part of the amount and the balance brought forward.
    amount_due: Nano,
    /// The currency's ISO 4217 code.
    currency: String,
    /// `open`, `paid`, `void` or `uncollectible`.
    status: &'static str,
    /// The time of payment; null if the invoice isn't paid.
    payment_date: Option<Time>,
    /// The lines of the invoice.
    items: Vec<InvoiceItem>,
    /// The invoice's credit notes, oldest first.
    credit_notes: Vec<CreditNote>,
}

/// A correction of an invoice after its month was closed. It lowers the amount due and refunds payments.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreditNote {
    /// The credit note's id.
    id: CreditNoteId,
    /// The number, consecutive over all credit notes of the service, without gaps.
    number: i64,
    /// The time when the credit note was created.
    created_at: Time,
    /// The source and id of the correction, and the number of other corrections in the same credit note.
    reference: String,
    /// The credited amount; negative if the lost discount exceeds the value of the corrected usage.
    amount: Nano,
    /// The lines of the credit note.
    items: Vec<InvoiceItem>,
}

/// A line of an invoice or a credit note; `amount` is exactly `quantity` × `unit_price`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InvoiceItem {
    /// A description of the line.
    description: String,
    /// The number of units.
    quantity: i64,
    unit_price: Pico,
    amount: Pico,
}

impl From<Item> for InvoiceItem {
    fn from(item: Item) -> Self {
        Self {
            description: item.description,
            quantity: item.quantity,
            unit_price: item.unit_price,
            amount: item.amount,
        }
    }
}

impl Invoice {
    /// Returns an invoice for the API's reply.
    pub fn new(document: Document) -> Self {
        let Document { invoice, items, notes } = document;
        let note = |(note, items): (invoices::CreditNote, Vec<Item>)| CreditNote {
            id: note.id,
            number: note.number,
            created_at: note.created_at,
            reference: note.reference,
            amount: note.amount,
            items: items.into_iter().map(InvoiceItem::from).collect(),
        };
        Self {
            id: invoice.id,
            number: invoice.number,
            period_start: invoice.month.start(),
            period_end: invoice.month.end(),
            amount: invoice.amount,
            balance_brought_forward: invoice.brought_forward,
            amount_due: invoice.due,
            currency: invoice.currency,
            status: invoice.status.as_str(),
            payment_date: invoice.paid_at,
            items: items.into_iter().map(InvoiceItem::from).collect(),
            credit_notes: notes.into_iter().map(note).collect(),
        }
    }
}

/// A page of invoices.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InvoicePage {
    /// The invoices of this page.
    invoices: Vec<Invoice>,
    #[serde(flatten)]
    page: PageInfo,
}

pub const LIST: Operation = Operation::new("list_invoices");

/// List invoices.
///
/// The newest come first.
pub async fn list(
    billing: Billing,
    scope: OrgScope,
    Query(query): Query<InvoiceQuery>,
) -> Result<Enveloped<InvoicePage>, Error> {
    let InvoiceQuery { page, status } = query;
    let listed = invoices::list(&billing, scope.organization_id(), status, page).await?;
    let invoices = listed.documents.into_iter().map(Invoice::new).collect();
    Ok(private(InvoicePage { invoices, page: PageInfo::new(listed.total, page) }))
}

/// The format of an invoice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvoiceFormat {
    Json,
    /// A printable page.
    Html,
}

impl Input<Api> for InvoiceFormat {
    const READS_BODY: bool = false;

    async fn read(_: &Api, call: &mut Call) -> Result<Self, Error> {
        Ok(if accept::prefers(&call.headers, "text/html") { Self::Html } else { Self::Json })
    }
    fn describe() -> Description {
        Description::default()
    }
}

/// An invoice in the requested format.
#[derive(Debug)]
pub enum InvoiceReply {
    Json(Enveloped<Invoice>),
    Html(String),
}

impl Reply for InvoiceReply {
    fn into_response(self) -> Result<Response<Body>, Error> {
        match self {
            Self::Json(invoice) => invoice.into_response(),
            Self::Html(page) => Ok(page_response(page)),
        }
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        <Enveloped<Invoice> as Reply>::schema(generator)
    }
}

fn page_response(page: String) -> Response<Body> {
    let mut response = Response::new(reply::whole(page));
    let policy = HeaderValue::from_str(&format!("{}; frame-ancestors 'none'", *CONTENT_SECURITY_POLICY));
    let policy = policy.unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

pub const READ: Operation = Operation::new("get_invoice");

/// Get an invoice.
///
/// With `Accept: text/html`, it is returned as a printable page.
pub async fn read(
    billing: Billing,
    scope: InvoiceScope,
    form: InvoiceFormat,
) -> Result<Negotiated<InvoiceReply>, Error> {
    let document = invoices::complete(&billing, scope.invoice().clone()).await?;
    Ok(Negotiated(match form {
        InvoiceFormat::Json => InvoiceReply::Json(private(Invoice::new(document))),
        InvoiceFormat::Html => InvoiceReply::Html(PrintableInvoice::from(&document).html()?),
    }))
}
