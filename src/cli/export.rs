//! `tollkeeper export`

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use billing::Billing;
use billing::exports::{AllExports, BillingPeriod, Dataset, Export, Form, Source, Version};
use clap::Args;
use kernel::clock::Month;
use kernel::files;
use kernel::ids::OrganizationId;
use kernel::random::Random;

use crate::config::Config;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The month in which the charges are billed, such as 2026-01
    #[arg(long, value_name = "MONTH", value_parser = month)]
    month: Month,
    /// Export only this organization's charges; defaults to all organizations, including deleted ones
    #[arg(long, value_name = "ID", value_parser = super::audit::organization)]
    organization: Option<OrganizationId>,
    /// The FOCUS version: 1.2, 1.3 or 1.4
    #[arg(long, value_name = "VERSION", default_value = "1.2", value_parser = version)]
    focus_version: Version,
    /// The dataset to write, with `--focus-version 1.4`: cost_and_usage, invoice_detail or billing_period
    #[arg(long, value_name = "DATASET", default_value = "cost_and_usage", value_parser = dataset)]
    dataset: Dataset,
    /// The file to write or replace; defaults to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "write a month such as 2026-01".to_owned())
}

fn version(text: &str) -> Result<Version, String> {
    text.parse().map_err(|_| format!("write {}", choices(Version::ALL)))
}

fn dataset(text: &str) -> Result<Dataset, String> {
    text.parse().map_err(|_| format!("write {}", choices(Dataset::ALL)))
}

/// Returns the choices as text, such as `1.2, 1.3 or 1.4`.
fn choices<T: Copy + Into<&'static str>>(all: &[T]) -> String {
    let words: Vec<&str> = all.iter().map(|choice| (*choice).into()).collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

/// Writes the charges.
pub fn run(config: Config, arguments: Arguments) -> Result<(), String> {
    let Arguments { month, organization, focus_version, dataset, output } = arguments;
    let form = Form::new(focus_version, dataset);
    let form = form.ok_or_else(|| "--dataset: requires FOCUS 1.4: add `--focus-version 1.4`".to_owned())?;
    let runtime = super::runtime()?;
    let write = |to: &mut dyn Write| {
        runtime.block_on(async {
            let app = super::app(config).await?;
            write_all(&app.billing, month, organization, form, to).await
        })
    };
    match output {
        Some(file) => to_file(&file, write),
        None => write(&mut std::io::stdout().lock()),
    }
}

/// Writes to a temporary file first, so that a failed command leaves the old file unchanged.
fn to_file(file: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), String>) -> Result<(), String> {
    let failure = |error: std::io::Error| format!("--output {}: {error}", file.display());
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{:016x}.partial", u64::from_be_bytes(Random::system().bytes())));
    let temporary = PathBuf::from(temporary);
    let partial = std::fs::File::create_new(&temporary).map_err(failure)?;
    let mut partial = std::io::BufWriter::new(partial);
    let written = write(&mut partial).and_then(|()| partial.flush().map_err(failure));
    let written = written.and_then(|()| files::replace(&temporary, file).map_err(failure));
    if written.is_err() {
        std::fs::remove_file(&temporary).ok();
    }
    written.map(|_| ())
}

async fn write_all(
    billing: &Billing,
    month: Month,
    organization: Option<OrganizationId>,
    form: Form,
    to: &mut dyn Write,
) -> Result<(), String> {
    // Look up the organization before writing anything.
    let mut one = match organization {
        Some(id) => Some(begin(billing, id, month, form).await?),
        None => None,
    };
    if !write_text(to, &form.header())? {
        return Ok(());
    }
    let mut all = AllExports::begin(billing, Source::Standby, month, form);
    // The billing period of each issuer, for all of its organizations.
    let mut periods: BTreeMap<String, BillingPeriod> = BTreeMap::new();
    loop {
        let export = match organization {
            Some(_) => one.take(),
            None => all.next_export().await.map_err(|error| error.to_string())?,
        };
        let Some(mut export) = export else { break };
        if form.dataset() == Dataset::BillingPeriod {
            let period = export.billing_period();
            let merged =
                periods.remove(&period.issuer).map_or_else(|| period.clone(), |other| other.merge(period));
            periods.insert(period.issuer.clone(), merged);
            continue;
        }
        while let Some(lines) = export.next_lines().await.map_err(|error| error.to_string())? {
            if !write_text(to, &lines)? {
                return Ok(());
            }
        }
    }
    let periods: String = periods.values().map(BillingPeriod::line).collect();
    write_text(to, &periods).map(|_| ())
}

async fn begin(billing: &Billing, id: OrganizationId, month: Month, form: Form) -> Result<Export, String> {
    let export = Export::begin(billing, Source::Standby, id, month, form).await;
    export.map_err(|error| error.to_string())
}

/// Returns `false` if the reader closed the pipe, which isn't an error.
fn write_text(to: &mut dyn Write, text: &str) -> Result<bool, String> {
    match to.write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(|error| format!("can't write: {error}")),
    }
}
