//! `tollkeeper audit --receipts FILE`

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::config::Config;
use api::service::usage::read_receipt;
use billing::receipts::{Receipt, Report};
use kernel::error::Error;

/// Number of receipts compared at a time.
const BATCH: usize = 1_000;

pub(super) fn run(config: Config, file: &Path, as_json: bool) -> Result<(), String> {
    let report = super::super::runtime()?.block_on(compare(config, file))?;
    if as_json {
        super::super::print(&serde_json::to_string(&report).map_err(|error| error.to_string())?);
    } else {
        for (what, receipts) in [("missing", &report.missing), ("different", &report.different)] {
            for receipt in receipts {
                super::super::print(&line(what, receipt));
            }
        }
        super::super::print(&summary(&report));
    }
    if report.is_clean() {
        return Ok(());
    }
    Err(format!(
        "the books lack {} of {} events, and {} differ: send the missing ones to `POST /service/v1/usage` again, where \
         each counts once",
        report.missing.len(),
        report.receipts,
        report.different.len()
    ))
}

async fn compare(config: Config, file: &Path) -> Result<Report, String> {
    let name = file.display();
    let opened = File::open(file).map_err(|error| format!("{name}: {error}"))?;
    let app = super::super::app(config).await?;
    let (mut report, mut events) = (Report::default(), Vec::new());
    for (number, line) in (1_u64..).zip(BufReader::new(opened).split(b'\n')) {
        let line = line.map_err(|error| format!("{name}: {error}"))?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        events.extend(read_receipt(&line).map_err(|error| format!("{name}:{number}: {}", reason(&error)))?);
        if events.len() >= BATCH {
            report.add(&app.billing, &events).await.map_err(|error| error.to_string())?;
            events.clear();
        }
    }
    report.add(&app.billing, &events).await.map_err(|error| error.to_string())?;
    Ok(report)
}

/// Returns why a line can't be parsed.
fn reason(error: &Error) -> String {
    match error.details.first() {
        Some(detail) => detail.message.clone(),
        None => error.public_message().to_owned(),
    }
}

fn line(what: &str, receipt: &Receipt) -> String {
    let Receipt { source, id, time, prompt_tokens, completion_tokens } = receipt;
    format!("{what}  {time}  {source}  {id}  {prompt_tokens} + {completion_tokens} tokens")
}

fn summary(report: &Report) -> String {
    let tokens = |of: fn(&Receipt) -> i64| report.missing.iter().map(of).fold(0_i64, i64::saturating_add);
    let too_old = match report.too_old {
        0 => String::new(),
        count => format!(" {count} are so old that their events may be deleted."),
    };
    format!(
        "Compared {} events with the books: {} are there, {} are missing with {} + {} tokens, {} differ.{too_old}",
        report.receipts,
        report.found,
        report.missing.len(),
        tokens(|receipt| receipt.prompt_tokens),
        tokens(|receipt| receipt.completion_tokens),
        report.different.len()
    )
}
