//! Tables as CSV (RFC 4180), and the choice between JSON and CSV.

use http::{HeaderValue, Response, header};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use crate::Api;
use crate::accept;
use crate::gate::Call;
use input::fields::{Field, Location, Problems, Record};
use input::json::Json;
use input::types::one_of;
use kernel::error::Error;
use web::input::{Description, Input, Query};
use web::reply::{self, Body, Enveloped, Reply};

/// The format of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Format {
    Json,
    Csv,
}

impl Field for Format {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "enum": ["json", "csv"], "examples": ["json"]})
    }
}

/// A table in the requested format.
#[derive(Debug)]
pub enum JsonOrCsv<T> {
    Json(Enveloped<T>),
    /// A file to be saved.
    Csv {
        file: String,
        text: String,
    },
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for JsonOrCsv<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let (file, text) = match self {
            Self::Json(enveloped) => return enveloped.into_response(),
            Self::Csv { file, text } => (file, text),
        };
        let mut response = Response::new(reply::whole(text));
        let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{file}\""))
            .map_err(|_| Error::internal("a file's name can't be a header"))?;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
        headers.insert(header::CONTENT_DISPOSITION, disposition);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    fn other_content_type() -> Option<&'static str> {
        Some("text/csv")
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        Enveloped::<T>::schema(generator)
    }
}

/// Query parameters, and the format that the header `Accept` asks for.
#[derive(Debug)]
pub struct QueryAndFormat<T> {
    pub query: T,
    pub format: Format,
}

impl<T: Record<Api>> Input<Api> for QueryAndFormat<T> {
    const READS_BODY: bool = false;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let Query(query) = <Query<T> as Input<Api>>::read(api, call).await?;
        let is_csv = accept::prefers(&call.headers, "text/csv");
        Ok(Self { query, format: if is_csv { Format::Csv } else { Format::Json } })
    }
    fn describe() -> Description {
        <Query<T> as Input<Api>>::describe()
    }
}

/// A table whose format the header `Accept` has decided.
#[derive(Debug)]
pub struct ByAccept<T>(pub JsonOrCsv<T>);

impl<T: Serialize + JsonSchema + Send + 'static> Reply for ByAccept<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = self.0.into_response()?;
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        Ok(response)
    }

    fn other_content_type() -> Option<&'static str> {
        JsonOrCsv::<T>::other_content_type()
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        JsonOrCsv::<T>::schema(generator)
    }
}

/// Adds a line of cells, with quotes where needed.
pub fn line(text: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().map(quote).collect();
    text.push_str(&cells.join(","));
    text.push_str("\r\n");
}

/// Quotes a cell if needed; semicolons and tabs are separators in some locales.
fn quote(cell: String) -> String {
    if cell.contains(['"', ',', ';', '\t', '\r', '\n']) || cell != cell.trim() {
        return format!("\"{}\"", cell.replace('"', "\"\""));
    }
    cell
}

/// Prefixes a text that spreadsheets would read as a formula with an apostrophe. Names come from users, and
/// the file is opened by others.
pub fn escape_formula(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        let cases = [
            ("Prod", "Prod"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("a;=1+1", "\"a;=1+1\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "\"'\t=1\""),
            ("＝1", "'＝1"),
            ("a=1", "a=1"),
            ("", ""),
        ];
        for (name, cell) in cases {
            assert_eq!(quote(escape_formula(name)), cell);
        }
    }
}
