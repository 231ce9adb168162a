//! Reading of the providers file. All mistakes in it are reported at once.

mod entry;

use std::collections::HashSet;
use std::env::VarError;
use std::fmt;
use std::io::Read;
use std::path::Path;

use kernel::document::{self, DeTable, DeValue, MistakeKind, Spanned, did_you_mean};

use crate::settings::Settings;
use entry::Entry;

/// The maximum length of a file, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// The maximum number of providers in a file.
const MAX_PROVIDERS: usize = 20;

/// The mistakes in a providers file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// A sentence for each mistake, with the file and the line.
    pub problems: Vec<String>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl std::error::Error for FileError {}

/// The contents of a providers file.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ProvidersFile {
    /// The providers, in the order of the file.
    pub providers: Vec<Settings>,
    /// Sentences about settings that are valid, but may be unsafe.
    pub warnings: Vec<String>,
}

/// Reads a file.
///
/// # Errors
/// The file has mistakes: the error lists all of them.
pub fn load(file: &Path) -> Result<ProvidersFile, FileError> {
    let name = file.display().to_string();
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(MAX_FILE_BYTES.saturating_add(1)).read_to_string(&mut text));
    let why = match read {
        Err(error) => Some(format!("{name}: the file can't be read: {error}")),
        Ok(_) if u64::try_from(text.len()).is_ok_and(|bytes| bytes > MAX_FILE_BYTES) => {
            Some(format!("{name}: the file is larger than {} KiB", MAX_FILE_BYTES / 1024))
        }
        Ok(_) => None,
    };
    match why {
        Some(why) => Err(FileError { problems: vec![why] }),
        None => read_text(&name, &text, file.parent().unwrap_or(Path::new("")), |name| std::env::var(name)),
    }
}

/// Reads the text of a file with this name. Paths in it are relative to `folder`.
///
/// # Errors
/// The text has mistakes: the error lists all of them.
pub fn read_text(
    name: &str,
    text: &str,
    folder: &Path,
    environment: fn(&str) -> Result<String, VarError>,
) -> Result<ProvidersFile, FileError> {
    let mut report = Report { name, text, problems: Vec::new(), warnings: Vec::new() };
    let table = match document::parse(text) {
        Ok(table) => table,
        Err(mistake) => {
            let MistakeKind::Syntax(why) = mistake.kind else {
                return Err(FileError { problems: Vec::new() });
            };
            return Err(FileError { problems: vec![format!("{name}:{}: {why}", mistake.line)] });
        }
    };
    for key in table.keys().filter(|key| key.get_ref() != "providers") {
        let hint = did_you_mean(key.get_ref(), ["providers"].into_iter());
        let why = format!("unknown key `{}`{hint}: write `[[providers]]` and its keys below", key.get_ref());
        report.refuse(key.span().start, &why);
    }
    let providers = read_providers(&table, folder, environment, &mut report);
    let Report { mut problems, mut warnings, .. } = report;
    if !problems.is_empty() {
        problems.sort();
        let line = |(line, why)| format!("{name}:{line}: {why}");
        return Err(FileError { problems: problems.into_iter().map(line).collect() });
    }
    warnings.sort();
    Ok(ProvidersFile { providers, warnings: warnings.into_iter().map(|(_, why)| why).collect() })
}

fn read_providers(
    table: &DeTable<'_>,
    folder: &Path,
    environment: fn(&str) -> Result<String, VarError>,
    report: &mut Report<'_>,
) -> Vec<Settings> {
    let Some(value) = table.get("providers") else { return Vec::new() };
    let Some(entries) = value.get_ref().as_array() else {
        report.refuse(
            value.span().start,
            "`providers`: expected tables: write `[[providers]]` and their keys below",
        );
        return Vec::new();
    };
    if entries.len() > MAX_PROVIDERS {
        report.refuse(value.span().start, &format!("a file can have at most {MAX_PROVIDERS} providers"));
        return Vec::new();
    }
    let (mut ids, mut issuers) = (HashSet::new(), HashSet::new());
    let mut providers = Vec::new();
    for entry in entries.iter() {
        let at = entry.span().start;
        let DeValue::Table(keys) = entry.get_ref() else {
            report.refuse(at, "`providers`: expected tables: write `[[providers]]` and their keys below");
            continue;
        };
        let Some(settings) = Entry::new(at, keys, report).read(folder, environment) else { continue };
        let label = format!("provider `{}`", settings.id);
        if !ids.insert(settings.id.clone()) {
            report.refuse(at, &format!("{label}: `id`: another provider has it: use a different one"));
        }
        if !issuers.insert(settings.issuer.clone()) {
            let why = "`issuer`: another provider has it: list each issuer only once";
            report.refuse(at, &format!("{label}: {why}"));
        }
        providers.push(settings);
    }
    providers
}

/// The mistakes and warnings that were found so far.
struct Report<'a> {
    name: &'a str,
    text: &'a str,
    /// The mistakes, with their line numbers.
    problems: Vec<(usize, String)>,
    warnings: Vec<(usize, String)>,
}

impl Report<'_> {
    fn refuse(&mut self, at: usize, why: &str) {
        self.problems.push((document::line(self.text, at), why.to_owned()));
    }

    fn warn(&mut self, at: usize, why: &str) {
        let line = document::line(self.text, at);
        self.warnings.push((line, format!("{}:{line}: {why}", self.name)));
    }
}

/// Returns the byte offset of a value in the text.
fn start<T>(value: &Spanned<T>) -> usize {
    value.span().start
}

#[cfg(test)]
mod tests;
