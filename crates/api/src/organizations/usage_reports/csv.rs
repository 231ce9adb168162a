//! Usage reports as CSV (RFC 4180).

use http::{HeaderValue, Response, header};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use billing::rules::periods::Range;
use billing::rules::usage_groups::{Groups, Subject};
use billing::usage_reports::Row;
use kernel::error::Error;
use web::reply::{self, Body, Enveloped, Reply};

/// A report in the requested format.
#[derive(Debug)]
pub enum Report<T> {
    Json(Enveloped<T>),
    /// A file to be saved.
    Csv {
        file: String,
        text: String,
    },
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Report<T> {
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

/// Returns the name of a report's file: its subject, first day and last day.
pub fn usage_file(subject: &str, range: Range) -> String {
    let last = range.end_exclusive.plus(-1).max(range.start);
    format!("usage_{subject}_{}_{last}.csv", range.start)
}

/// Returns a header line and one line per row.
pub fn text(subject: Subject, groups: Groups, rows: &[Row], currency: &str) -> String {
    let named = subject == Subject::Project;
    let mut text = String::new();
    let mut names = vec!["date"];
    let ids = [("model", groups.model), ("project_id", groups.project), ("api_key_id", groups.api_key)];
    names.extend(ids.iter().filter(|(_, on)| *on).map(|(name, _)| *name));
    names.extend(named.then_some("api_key_name"));
    names.extend(["chat_requests", "chat_prompt_tokens", "chat_completion_tokens", "chat_amount"]);
    names.extend(["embeddings_requests", "embeddings_tokens", "embeddings_amount", "currency"]);
    // The last column, so that the others keep their positions.
    names.extend(groups.api_key.then_some("user_id"));
    line(&mut text, names.into_iter().map(str::to_owned));
    for row in rows {
        let (chat, embeddings) = (&row.usage.chat, &row.usage.embeddings);
        let of_row = &row.group;
        let of_group = [
            (&of_row.model, groups.model),
            (&of_row.project_id, groups.project),
            (&of_row.api_key_id, groups.api_key),
            (&of_row.api_key_name, named),
        ];
        let shown = |value: &Option<String>| value.as_deref().map(escape_formula).unwrap_or_default();
        let of_group = of_group.into_iter().filter(|(_, on)| *on).map(|(value, _)| shown(value));
        let person = groups.api_key.then(|| shown(&of_row.user_id));
        let cells = [
            chat.requests.to_string(),
            chat.prompt_tokens.to_string(),
            chat.completion_tokens.to_string(),
            chat.amount.to_string(),
            embeddings.requests.to_string(),
            embeddings.prompt_tokens.to_string(),
            embeddings.amount.to_string(),
            currency.to_owned(),
        ];
        line(&mut text, std::iter::once(row.date.to_string()).chain(of_group).chain(cells).chain(person));
    }
    text
}

fn line(text: &mut String, cells: impl Iterator<Item = String>) {
    let cells: Vec<_> = cells.map(quote).collect();
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
fn escape_formula(text: &str) -> String {
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
