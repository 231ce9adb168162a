//! The command line, one file per command.

mod audit;
mod audit_log;
mod backup;
mod billing;
mod catalog;
mod clock;
mod config;
mod credit;
mod export;
mod health;
mod invoice;
mod mail;
mod margin;
mod master_key;
mod migrate;
mod openapi;
mod operator;
mod organization;
mod payment;
mod providers;
mod serve;
mod session;
mod setup;
mod signing_key;
mod upstream;
mod user;
mod webhook;

use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::app::{App, BootError};
use crate::config::Config;
use kernel::clock::{Clock, Day, Time};

/// A self-hosted control plane for AI model platforms: accounts, keys, exact usage, and money.
///
/// Configuration: built-in defaults, then a TOML file, then environment variables (TOLLKEEPER_ followed by
/// the key in upper case, with `__` between table and key).
#[derive(Debug, Parser)]
#[command(name = "tollkeeper", version, max_term_width = 100)]
struct Arguments {
    /// The TOML file, also settable as TOLLKEEPER_CONFIG; defaults to `tollkeeper.toml` in the working
    /// directory, if it exists
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run both listeners (the default)
    Serve,
    /// Print the link for creating the first account, an operator account
    Setup {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// User accounts
    User {
        #[command(subcommand)]
        command: user::Command,
    },
    /// Operators of this installation
    Operator {
        #[command(subcommand)]
        command: operator::Command,
    },
    /// Queued email, and a test of the mail server
    Mail {
        #[command(subcommand)]
        command: mail::Command,
    },
    /// Migrate the database to this version's schema, and exit
    Migrate {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check that money and usage add up; exits with 1 if they don't
    Audit(audit::Arguments),
    /// Copy the database to a file while servers are running, and verify the copy
    Backup(backup::Arguments),
    /// Check whether the running server is ready; exits with 0, or with 1 and the reason
    Health {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// List audit entries, newest first
    AuditLog(audit_log::Arguments),
    /// Keys that sign tokens
    SigningKey {
        #[command(subcommand)]
        command: signing_key::Command,
    },
    /// Key that encrypts stored secrets
    MasterKey {
        #[command(subcommand)]
        command: master_key::Command,
    },
    /// User sessions
    Session {
        #[command(subcommand)]
        command: session::Command,
    },
    /// Models and prices
    Catalog {
        #[command(subcommand)]
        command: catalog::Command,
    },
    /// Inference servers in the catalog
    Upstream {
        #[command(subcommand)]
        command: upstream::Command,
    },
    /// Sign-in providers
    Providers {
        #[command(subcommand)]
        command: providers::Command,
    },
    /// Organizations, their balances and credit limits
    Organization {
        #[command(subcommand)]
        command: organization::Command,
    },
    /// Credits of organizations
    Credit {
        #[command(subcommand)]
        command: credit::Command,
    },
    /// Stripe payments and their refunds
    Payment {
        #[command(subcommand)]
        command: payment::Command,
    },
    /// Webhooks of the installation, which receive the events of all organizations and of the installation
    /// itself
    Webhook {
        #[command(subcommand)]
        command: webhook::Command,
    },
    /// Month-end closing
    Billing {
        #[command(subcommand)]
        command: billing::Command,
    },
    /// Write all charges of a month as CSV in the FOCUS format
    Export(export::Arguments),
    /// Show the margin of calls: their list price minus the cost of their routes
    Margin(margin::Arguments),
    /// Clock of the service
    Clock {
        #[command(subcommand)]
        command: clock::Command,
    },
    /// Invoices
    Invoice {
        #[command(subcommand)]
        command: invoice::Command,
    },
    /// Print the OpenAPI document
    Openapi,
    /// Print the effective configuration with secrets hidden
    Config {
        /// Print it as JSON instead of TOML
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command line.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match execute(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error(&failure.message);
            failure.code
        }
    }
}

/// A command that failed, with its exit code.
struct Failure {
    code: ExitCode,
    message: String,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { code: ExitCode::FAILURE, message }
    }
}

impl Failure {
    /// Returns the failure of a command that doesn't apply to this installation. Its exit code is that of an
    /// invalid command line, because nothing was attempted.
    fn misused(message: String) -> Self {
        Self { code: ExitCode::from(2), message }
    }
}

fn execute(arguments: Arguments) -> Result<(), Failure> {
    let config = || {
        let environment = environment()?;
        let named = arguments.config.or_else(|| std::env::var_os("TOLLKEEPER_CONFIG").map(PathBuf::from));
        Config::load(named.as_deref(), environment).map_err(|error| error.to_string())
    };
    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => serve::run(config()?),
        Command::Setup { json } => setup::run(config()?, json),
        Command::User { command } => user::run(config()?, &command),
        Command::Operator { command } => operator::run(config()?, &command),
        Command::Mail { command } => mail::run(config()?, &command),
        Command::Migrate { json } => migrate::run(&config()?, json),
        Command::Audit(arguments) => audit::run(config()?, &arguments),
        Command::Backup(arguments) => return backup::run(&config()?, &arguments),
        Command::Health { json } => health::run(&config()?, json),
        Command::AuditLog(arguments) => audit_log::run(config()?, arguments),
        Command::SigningKey { command } => signing_key::run(config()?, &command),
        Command::MasterKey { command } => master_key::run(config()?, &command),
        Command::Session { command } => session::run(config()?, &command),
        // Checking a file requires neither an installation nor a valid configuration.
        Command::Catalog { command: catalog::Command::Check { file, currency, json } } => {
            catalog::check(&file, currency.as_deref(), json)
        }
        Command::Catalog { command: catalog::Command::Reload { json } } => catalog::reload(config()?, json),
        Command::Catalog { command: catalog::Command::Show { json } } => catalog::show(config()?, json),
        Command::Upstream { command: upstream::Command::Check { file, probe, json } } => {
            let file = match file {
                Some(file) => file,
                None => upstream::configured_file(&config()?)?,
            };
            upstream::check(&file, probe, json)
        }
        Command::Providers { command: providers::Command::Check { file, json } } => {
            let file = match file {
                Some(file) => file,
                None => providers::configured_file(&config()?)?,
            };
            providers::check(&file, json)
        }
        Command::Providers { command: providers::Command::Reload { json } } => {
            providers::reload(config()?, json)
        }
        Command::Organization { command } => organization::run(config()?, &command),
        Command::Credit { command } => credit::run(config()?, command),
        Command::Payment { command } => payment::run(config()?, &command),
        Command::Webhook { command } => webhook::run(config()?, command),
        Command::Billing { command } => billing::run(config()?, &command),
        Command::Export(arguments) => export::run(config()?, arguments),
        Command::Margin(arguments) => margin::run(config()?, &arguments),
        Command::Clock { command } => clock::run(config()?, &command),
        Command::Invoice { command } => invoice::run(config()?, &command),
        Command::Openapi => openapi::run(&config()?),
        Command::Config { json } => config::run(&config()?, json),
    };
    done.map_err(Failure::from)
}

/// Returns the environment. Other programs' variables may contain arbitrary bytes. `TOLLKEEPER_CONFIG` is
/// read separately, because a path may contain arbitrary bytes.
fn environment() -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let shown = name.to_string_lossy().into_owned();
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => variables.push((name, value)),
            // Don't show the value, which may be a secret.
            (Ok(name), Err(_)) if name.starts_with("TOLLKEEPER_") && name != "TOLLKEEPER_CONFIG" => {
                return Err(format!("environment variable {name}: its value is not valid UTF-8"));
            }
            (Err(_), _) if shown.starts_with("TOLLKEEPER_") => {
                return Err(format!("environment variable {shown}: its name is not valid UTF-8"));
            }
            _ => {}
        }
    }
    Ok(variables)
}

/// Prints the result of a command. A closed pipe is not an error.
#[allow(clippy::print_stdout, reason = "the only place that prints results")]
fn print(text: &str) {
    use std::io::Write;
    if writeln!(std::io::stdout(), "{}", text.trim_end()).is_err() {
        // The reader closed the pipe.
    }
}

#[allow(clippy::print_stderr, reason = "the only place that prints errors")]
fn print_error(text: &str) {
    eprintln!("tollkeeper: {text}");
}

/// Returns the application for a command, on a migrated database; servers may be running. Prices come from
/// the database: catalog file, providers file, and Stripe secrets aren't read.
async fn app(mut config: Config) -> Result<App, String> {
    config.payments = Default::default();
    app_with_payments(config).await
}

/// Like [`app`], for a command that uses Stripe: the files with its secrets are read as well.
async fn app_with_payments(mut config: Config) -> Result<App, String> {
    config.catalog_file = None;
    config.sign_in.providers_file = None;
    let app = App::new(config, Clock::System)?;
    match app.boot_for_command().await {
        Ok(()) => Ok(app),
        Err(BootError::Unavailable(what) | BootError::Fatal(what)) => Err(what),
    }
}

/// Parses a date or timestamp from the command line.
fn time(text: &str) -> Result<Time, String> {
    let time = Time::parse(text).or_else(|| Day::parse(text).map(Day::start));
    time.ok_or_else(|| {
        "write a date such as 2026-01-31 or a timestamp such as 2026-01-31T09:30:00Z".to_owned()
    })
}

/// An async runtime.
struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    /// Runs a future to completion. tokio's function would be compiled for each command's future; erasing the
    /// type reduces this to one per result type.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let future: Pin<&mut dyn Future<Output = T>> = pin!(future);
        self.0.block_on(future)
    }
}

/// Returns an async runtime for a command.
fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map(Runtime)
        .map_err(|error| format!("can't start the async runtime: {error}"))
}
