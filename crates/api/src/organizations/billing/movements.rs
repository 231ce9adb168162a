//! `/v1/organizations/{organization_id}/billing/movements` (docs/contract/billing.md#list-movements).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::accept::Negotiated;
use crate::csv::{Cell, CsvFile, CsvQuery, JsonOrCsv};
use crate::dates::DateField;
use crate::paging::{PageInfo, PageQuery};
use billing::Billing;
use billing::movements::{self, Movements, Query};
use input::fields::{Fields, Record};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{LedgerTransactionId, OrganizationId};
use kernel::money::Nano;
use kernel::page::Page;
use tenants::access::OrgScope;
use web::reply::private;
use web::route::Operation;

/// The page and the bounds of a list of movements.
#[derive(Clone, Copy, Debug)]
pub struct MovementQuery {
    pub page: Page,
    /// The bounds.
    pub query: Query,
}

impl Record<Api> for MovementQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let start: Option<Option<DateField>> =
            fields.described("The beginning, inclusive.").optional("start_date");
        let end: Option<Option<DateField>> = fields.described("The end, exclusive.").optional("end_date");
        let bound = |bound: Option<DateField>| bound.map(|DateField(bound)| bound);
        let query = Query { start: bound(start?), end: bound(end?) };
        Some(Self { page: page?.0, query })
    }
}

/// A page of movements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MovementPage {
    /// The movements of this page.
    movements: Vec<Movement>,
    #[serde(flatten)]
    page: PageInfo,
}

/// A change of the posted balance, which is the sum of all movements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Movement {
    /// The id of the movement.
    id: LedgerTransactionId,
    /// The time when the movement was booked.
    time: Time,
    /// `usage`, `credit`, `credit_expiry`, `discount`, `payment`, `void` or `write_off`.
    kind: &'static str,
    /// The amount; negative if it lowers the balance.
    amount: Nano,
    /// The currency's ISO 4217 code.
    currency: String,
    /// The reference or id of a credit, the id of an invoice or payment, or a month, depending on `kind`;
    /// null for usage.
    reference: Option<String>,
}

pub const LIST: Operation = Operation::new("list_movements");

/// List the movements of the balance.
///
/// The newest come first. Without bounds, the list goes back to the organization's creation, and its sum is
/// the posted balance. With `Accept: text/csv`, all movements are returned as a file, at most 100,000.
pub async fn list(
    billing: Billing,
    scope: OrgScope,
    CsvQuery { query, is_csv }: CsvQuery<MovementQuery>,
) -> Result<Negotiated<JsonOrCsv<MovementPage>>, Error> {
    let id = scope.organization_id();
    let MovementQuery { page, query } = query;
    Ok(Negotiated(if is_csv {
        JsonOrCsv::Csv(file(id, movements::list_all(&billing, id, query).await?))
    } else {
        let listed = movements::list(&billing, id, query, page).await?;
        let page = PageInfo::new(listed.total, page);
        JsonOrCsv::Json(private(MovementPage { movements: rows(listed).collect(), page }))
    }))
}

fn rows(listed: Movements) -> impl Iterator<Item = Movement> {
    let Movements { rows, currency, .. } = listed;
    rows.into_iter().map(move |row| Movement {
        id: row.id,
        time: row.time,
        kind: row.kind.as_str(),
        amount: row.amount,
        currency: currency.clone(),
        reference: row.reference,
    })
}

/// Returns a file with these movements.
pub fn file(id: OrganizationId, listed: Movements) -> CsvFile {
    let columns = ["id", "time", "kind", "amount", "currency", "reference"];
    let mut file = CsvFile::new(format!("movements_{id}.csv"), &columns);
    for row in rows(listed) {
        file.add([
            Cell::value(row.id),
            Cell::value(row.time),
            Cell::value(row.kind),
            Cell::value(row.amount),
            Cell::value(row.currency),
            Cell::text(row.reference.as_deref().unwrap_or_default()),
        ]);
    }
    file
}
