//! GET /console/organizations/{organization_id}/billing/export

use api::Api;
use api::gate::Visit;
use api::organizations::billing::export::{ExportFile, MonthField};
use billing::exports::Form;
use input::fields::{Fields, Record};
use kernel::clock::Month;
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::Filters;

use crate::console::Console;

/// The month of an export; the current month by default.
#[derive(Clone, Copy, Debug)]
pub struct ExportFilters {
    month: Option<Month>,
}

impl Record<Api> for ExportFilters {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let month: Option<Option<MonthField>> = fields.optional("month");
        Some(Self { month: month?.map(|MonthField(month)| month) })
    }
}

/// Get the charges of a month as a file in the FOCUS format.
pub async fn read(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<ExportFilters>,
) -> Result<ExportFile, Error> {
    let month = query.fields.month.unwrap_or_else(|| console.clock.now().day().month());
    ExportFile::begin(&console.billing, visit.scope.organization_id(), month, Form::default()).await
}
