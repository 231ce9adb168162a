//! `tollkeeper export`

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use billing::Billing;
use billing::exports::{self, AllExports, Export, Source};
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
    /// Only those of this organization; otherwise of all, deleted ones too
    #[arg(long, value_name = "ID", value_parser = super::audit::organization)]
    organization: Option<OrganizationId>,
    /// The file to write, which is replaced as a whole; otherwise standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "write a month such as 2026-01".to_owned())
}

/// Writes the charges.
pub fn run(config: Config, arguments: Arguments) -> Result<(), String> {
    let Arguments { month, organization, output } = arguments;
    let runtime = super::runtime()?;
    let write = |to: &mut dyn Write| {
        runtime.block_on(async {
            let app = super::app(config).await?;
            write_all(&app.billing, month, organization, to).await
        })
    };
    match output {
        Some(file) => to_file(&file, write),
        None => write(&mut std::io::stdout().lock()),
    }
}

/// Writes a file under another name first: a command that fails leaves the old one.
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
    to: &mut dyn Write,
) -> Result<(), String> {
    // The organization is looked up before anything is written.
    let mut one = match organization {
        Some(id) => Some(begin(billing, id, month).await?),
        None => None,
    };
    if !write_text(to, &exports::header())? {
        return Ok(());
    }
    let mut all = AllExports::begin(billing, Source::Standby, month);
    loop {
        let export = match organization {
            Some(_) => one.take(),
            None => all.next_export().await.map_err(|error| error.to_string())?,
        };
        let Some(mut export) = export else { break };
        while let Some(lines) = export.next_lines().await.map_err(|error| error.to_string())? {
            if !write_text(to, &lines)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn begin(billing: &Billing, id: OrganizationId, month: Month) -> Result<Export, String> {
    let export = Export::begin(billing, Source::Standby, id, month).await;
    export.map_err(|error| error.to_string())
}

/// Returns `false` if the reader has closed the pipe, which is not an error.
fn write_text(to: &mut dyn Write, text: &str) -> Result<bool, String> {
    match to.write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(|error| format!("can't write: {error}")),
    }
}
