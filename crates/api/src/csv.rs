//! Replies as CSV (RFC 4180), for spreadsheets.

use http::{HeaderValue, Response, header};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use crate::Api;
use crate::accept;
use crate::gate::Call;
use input::fields::Record;
use kernel::csv;
use kernel::error::Error;
use web::input::{Description, Input, Query};
use web::reply::{self, Body, Enveloped, Reply};

pub use kernel::csv::Cell;

/// The media type of CSV.
const MEDIA_TYPE: &str = "text/csv";

/// The query parameters of an operation that replies with CSV if the `Accept` header requests it.
#[derive(Debug)]
pub struct CsvQuery<T> {
    pub query: T,
    /// `true` if the client requests CSV.
    pub is_csv: bool,
}

impl<T: Record<Api>> Input<Api> for CsvQuery<T> {
    const READS_BODY: bool = false;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let Query(query) = <Query<T> as Input<Api>>::read(api, call).await?;
        Ok(Self { query, is_csv: accept::prefers(&call.headers, MEDIA_TYPE) })
    }
    fn describe() -> Description {
        <Query<T> as Input<Api>>::describe()
    }
}

/// A reply as JSON, or as a CSV file for download.
#[derive(Debug)]
pub enum JsonOrCsv<T> {
    Json(Enveloped<T>),
    Csv(CsvFile),
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for JsonOrCsv<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        match self {
            Self::Json(enveloped) => enveloped.into_response(),
            Self::Csv(file) => file.into_response(),
        }
    }

    fn other_content_type() -> Option<&'static str> {
        Some(MEDIA_TYPE)
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        Enveloped::<T>::schema(generator)
    }
}

/// A CSV file, written line by line.
#[derive(Debug)]
pub struct CsvFile {
    name: String,
    text: String,
}

impl CsvFile {
    /// Returns a file that contains only the header line with the names of the columns.
    pub fn new(name: String, columns: &[&str]) -> Self {
        let mut file = Self { name, text: String::new() };
        file.add(columns.iter().map(Cell::value));
        file
    }

    /// Adds a line.
    pub fn add(&mut self, cells: impl IntoIterator<Item = Cell>) {
        csv::add_line(&mut self.text, cells);
    }
}

impl Reply for CsvFile {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = Response::new(reply::whole(self.text));
        let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{}\"", self.name))
            .map_err(|_| Error::internal("a file's name can't be a header"))?;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
        headers.insert(header::CONTENT_DISPOSITION, disposition);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    fn content_type() -> &'static str {
        MEDIA_TYPE
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        serde_json::json!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_a_line_of_names_and_negative_numbers() {
        let mut file = CsvFile::new("x.csv".into(), &["amount", "reference"]);
        file.add([Cell::value(-5), Cell::text("-5")]);
        file.add([Cell::value("0.25"), Cell::text("")]);
        assert_eq!(file.text, "amount,reference\r\n-5,'-5\r\n0.25,\r\n");
    }
}
