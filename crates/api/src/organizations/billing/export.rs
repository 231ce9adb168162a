//! `/v1/organizations/{organization_id}/billing/export` (docs/contract/billing.md#focus-export).

use http::{HeaderValue, Response, header};
use schemars::SchemaGenerator;
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use crate::Api;
use billing::Billing;
use billing::exports::{Dataset, Export, Form, Source, Version};
use futures_util::stream;
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::{one_of, string};
use kernel::clock::Month;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use tenants::access::OrgScope;
use web::input::Query;
use web::reply::{Body, Reply};
use web::route::Operation;

/// The month whose charges are exported.
pub struct MonthField(pub Month);

impl Field for MonthField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match Month::parse(&text) {
            Some(month) => Some(Self(month)),
            None => {
                problems.add(at, "invalid_date", format!("`{}` must be a month such as 2026-01.", at.path))
            }
        }
    }
    fn schema() -> Value {
        json!({"type": "string", "pattern": "^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])$", "examples": ["2026-01"]})
    }
}

/// The file format of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Format {
    Focus,
}

impl Field for Format {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "ExportFormat", "enum": ["focus"], "examples": ["focus"]})
    }
}

/// A version of FOCUS.
struct VersionField(Version);

impl Field for VersionField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Version::ALL).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "FocusVersion", "enum": ["1.2", "1.3", "1.4"], "examples": ["1.2"]})
    }
}

/// A dataset of FOCUS.
struct DatasetField(Dataset);

impl Field for DatasetField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Dataset::ALL).map(Self)
    }
    fn schema() -> Value {
        json!({
            "type": "string",
            "title": "FocusDataset",
            "enum": ["cost_and_usage", "invoice_detail", "billing_period"],
            "examples": ["cost_and_usage"],
        })
    }
}

/// The query of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportQuery {
    pub month: Month,
    pub form: Form,
}

impl Record<Api> for ExportQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let format: Option<Format> = fields.described("The format of the response.").required("format");
        let month: Option<MonthField> =
            fields.described("The calendar month in UTC, such as `2026-01`.").required("month");
        let version = fields
            .described("The version of FOCUS that the file follows.")
            .or("version", VersionField(Version::default()));
        let dataset = fields
            .described("The records of the file. `invoice_detail` and `billing_period` need `version=1.4`.")
            .or("dataset", DatasetField(Dataset::default()));
        let form = Form::new(version?.0, dataset?.0);
        if form.is_none() {
            let message = "This dataset requires FOCUS 1.4. Send `version=1.4` with it.";
            fields.problem::<()>("dataset", "unknown_value", message.to_owned());
        }
        format?;
        Some(Self { month: month?.0, form: form? })
    }
}

/// The charges as a file, which is generated while it is sent.
pub struct ExportFile {
    name: String,
    form: Form,
    export: Export,
}

impl ExportFile {
    /// Starts an export of an organization's charges in a month.
    ///
    /// # Errors
    /// An error if the database fails or a sum overflows.
    pub async fn begin(
        billing: &Billing,
        id: OrganizationId,
        month: Month,
        form: Form,
    ) -> Result<Self, Error> {
        let export = Export::begin(billing, Source::Standby, id, month, form).await?;
        let dataset = match form.dataset() {
            Dataset::CostAndUsage => String::new(),
            dataset => format!("_{}", <&str>::from(dataset)),
        };
        Ok(Self { name: format!("focus{dataset}_{id}_{month}.csv"), form, export })
    }
}

impl Reply for ExportFile {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{}\"", self.name))
            .map_err(|_| Error::internal("a file's name can't be a header"))?;
        // An error aborts the response, so that the client doesn't mistake a partial file for a complete one.
        let lines =
            stream::try_unfold((Some(self.form.header()), self.export), |(header, mut export)| async {
                let lines = match header {
                    Some(header) => Some(header),
                    None => export.next_lines().await?,
                };
                Ok::<_, Error>(lines.map(|lines| (lines, (None, export))))
            });
        let mut response = Response::new(Body::from_stream(lines));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
        headers.insert(header::CONTENT_DISPOSITION, disposition);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    fn content_type() -> &'static str {
        "text/csv"
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({"type": "string"})
    }
}

pub const EXPORT: Operation =
    Operation { query: &[("format", "focus"), ("month", "2026-01")], ..Operation::new("export_charges") };

/// Export the charges of a month.
///
/// Returns a file in the FOCUS format, with a line for each day, project, key, model, kind of tokens and
/// price, and lines for discounts, rounding and credit notes. The lines of an invoice sum to its amount. With
/// `version=1.4`, the datasets `invoice_detail`, with the lines of invoices and credit notes, and
/// `billing_period`, with the status of the month, are also available.
pub async fn export(
    billing: Billing,
    scope: OrgScope,
    Query(query): Query<ExportQuery>,
) -> Result<ExportFile, Error> {
    ExportFile::begin(&billing, scope.organization_id(), query.month, query.form).await
}
