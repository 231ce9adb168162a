//! `tollkeeper mail …`

use clap::Subcommand;
use db::Page;
use kernel::ids::MailId;
use kernel::naming;
use mail::store::outbox::WaitingMail;
use operators::mails;
use serde_json::json;
use trail::Trail;

use crate::app::App;
use crate::config::Config;

/// Number of e-mails read at a time.
const PAGE_SIZE: i64 = 500;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a test e-mail through `mail.url` right away; exits with 1 and the reason if the mail server
    /// rejects it
    Test {
        /// The recipient's address
        #[arg(long, value_name = "ADDRESS", value_parser = address)]
        to: String,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// List queued e-mails, oldest first, with the reason why the last attempt failed
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Make a running server retry one queued e-mail, or all of them
    Retry {
        /// The e-mail's id; defaults to all e-mails. `mail list` shows the ids
        #[arg(value_name = "ID", value_parser = mail)]
        id: Option<MailId>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

fn address(text: &str) -> Result<String, String> {
    naming::email(text).map(|name| name.display).map_err(|problem| format!("it {}", problem.message))
}

fn mail(text: &str) -> Result<MailId, String> {
    MailId::parse(text).ok_or_else(|| {
        "an e-mail's id starts with `mail_` and has 26 more characters; `mail list` shows them".to_owned()
    })
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = &super::app(config).await?;
        match command {
            Command::Test { to, json } => test(app, to, *json).await,
            Command::List { json } => list(app, *json).await,
            Command::Retry { id, json } => retry(app, *id, *json).await,
        }
    })
}

async fn test(app: &App, to: &str, as_json: bool) -> Result<(), String> {
    let tested = mails::test(&app.operators, to, &Trail::operator()).await;
    let delivered = tested.map_err(|error| error.to_string())?.map_err(|error| error.to_string());
    if as_json {
        let error = delivered.as_ref().err();
        super::print(&json!({"to": to, "sent": error.is_none(), "error": error}).to_string());
    } else if delivered.is_ok() {
        super::print(&format!("A test mail to {to} was accepted for delivery."));
    }
    delivered.map_err(|error| format!("the test mail to {to} wasn't sent: {error}"))
}

async fn list(app: &App, as_json: bool) -> Result<(), String> {
    for page in 1.. {
        let page = Page { page, page_size: PAGE_SIZE };
        let waiting = mails::list(&app.operators, page).await.map_err(|error| error.to_string())?;
        if waiting.rows.is_empty() {
            break;
        }
        for mail in &waiting.rows {
            super::print(&if as_json { to_json(mail) } else { line(mail) });
        }
    }
    Ok(())
}

fn to_json(mail: &WaitingMail) -> String {
    let WaitingMail { id, template, email, created_at, attempts, next_attempt_at, last_error } = mail;
    json!({"id": id, "template": template.as_str(), "email": email, "created_at": created_at,
           "attempts": attempts, "next_attempt_at": next_attempt_at, "last_error": last_error})
    .to_string()
}

/// Returns an e-mail's id, kind, recipient, attempts, and last error as one line.
fn line(mail: &WaitingMail) -> String {
    let WaitingMail { id, template, email, created_at, attempts, next_attempt_at, last_error } = mail;
    let failed = last_error.as_ref().map(|error| format!("  {error}")).unwrap_or_default();
    let template = template.as_str();
    format!(
        "{id}  {template}  {email}  since {created_at}, {attempts} attempts, next {next_attempt_at}{failed}"
    )
}

async fn retry(app: &App, id: Option<MailId>, as_json: bool) -> Result<(), String> {
    let mails = mails::retry(&app.operators, id, &Trail::operator()).await;
    let mails = mails.map_err(|error| error.to_string())?;
    if mails == 0
        && let Some(id) = id
    {
        return Err(format!("mail {id} isn't queued: it was sent or given up"));
    }
    super::print(&if as_json {
        json!({ "mails": mails }).to_string()
    } else {
        format!("{mails} e-mails are due now; a running server sends them.")
    });
    Ok(())
}
