//! `tollkeeper user …`

use accounts::profiles::{self, User};
use accounts::store::users::administration::Filter;
use clap::Subcommand;
use kernel::clock::Time;
use kernel::ids::UserId;
use kernel::naming::{self, Name};
use kernel::texts::Problem;
use operators::users::{self, CreatedUser, UserChange, UserDetail};
use serde::Serialize;
use serde_json::{Value, json};
use trail::Trail;

use crate::app::App;
use crate::config::Config;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List accounts, oldest first
    List {
        /// Show only accounts whose address or username contains this text
        #[arg(long, value_name = "TEXT", default_value = "")]
        search: String,
        /// Show only disabled accounts
        #[arg(long)]
        disabled: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show an account with its second factor, sessions and organizations
    Show {
        #[command(flatten)]
        user: OneUser,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Create an account, and print a link for choosing its password, which works once within a day
    Create {
        /// The user's e-mail address; using the link verifies it
        #[arg(long, value_name = "ADDRESS", value_parser = email)]
        email: Name,
        /// The username; defaults to one derived from the address
        #[arg(long, value_name = "NAME", value_parser = username)]
        username: Option<Name>,
        /// Make the user an operator of this installation
        #[arg(long)]
        operator: bool,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Disable an account: sign-in is blocked, its sessions end within a second, and its API keys can no
    /// longer manage anything but continue to work for model calls
    Disable {
        #[command(flatten)]
        user: OneUser,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Enable a disabled account
    Enable {
        #[command(flatten)]
        user: OneUser,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a user's sessions within a second: they must log in again
    EndSessions {
        #[command(flatten)]
        user: OneUser,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the second factor and all passkeys of a user who has lost access to them; the user's sessions
    /// end, and the password alone is enough to sign in
    ResetSecondFactor {
        #[command(flatten)]
        user: OneUser,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The account that a command applies to.
#[derive(Debug, clap::Args)]
pub struct OneUser {
    /// The account's id or e-mail address
    #[arg(value_name = "ID_OR_EMAIL")]
    text: String,
}

impl OneUser {
    /// Returns the account.
    pub async fn find(&self, app: &App) -> Result<User, String> {
        let found = profiles::find(&app.accounts, &self.text).await.map_err(|error| error.to_string())?;
        found.ok_or_else(|| format!("no account has the address or id {}", self.text))
    }
}

fn email(text: &str) -> Result<Name, String> {
    naming::email(text).map_err(|Problem { message, .. }| format!("it {message}"))
}

fn username(text: &str) -> Result<Name, String> {
    naming::username(text).map_err(|Problem { message, .. }| format!("it {message}"))
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = &super::app(config).await?;
        let operators = &app.operators;
        let trail = &Trail::operator();
        match command {
            Command::List { search, disabled, json } => {
                let search_folded = kernel::texts::fold(search);
                let filter = Filter { search_folded, is_disabled: *disabled, is_operator: false };
                list(app, &filter, *json).await
            }
            Command::Show { user, json } => show(app, user, *json).await,
            Command::Create { email, username, operator, json } => {
                let created = users::create(operators, email, username.as_ref(), *operator, trail).await;
                print_created(&created.map_err(|error| error.to_string())?, *json)
            }
            Command::Disable { user, json } => {
                let id = user.find(app).await?.id;
                print_change(users::disable(operators, id, trail).await, *json, |change| {
                    match (change.was_unchanged, change.ended_sessions) {
                        (true, _) => "was already disabled".to_owned(),
                        (_, sessions) => format!("is disabled; sessions ended: {sessions}"),
                    }
                })
            }
            Command::Enable { user, json } => {
                let id = user.find(app).await?.id;
                print_change(users::enable(operators, id, trail).await, *json, |change| {
                    if change.was_unchanged { "was not disabled" } else { "is enabled again" }.to_owned()
                })
            }
            Command::EndSessions { user, json } => {
                let id = user.find(app).await?.id;
                print_change(users::end_sessions(operators, id, trail).await, *json, |change| {
                    match change.ended_sessions {
                        0 => "had no session".to_owned(),
                        sessions => format!("is logged out; sessions ended: {sessions}"),
                    }
                })
            }
            Command::ResetSecondFactor { user, json } => {
                let id = user.find(app).await?.id;
                print_change(users::reset_second_factor(operators, id, trail).await, *json, |change| {
                    match (change.was_unchanged, change.ended_sessions) {
                        (true, _) => "had no second factor".to_owned(),
                        (_, sessions) => {
                            format!("no longer has a second factor; sessions ended: {sessions}")
                        }
                    }
                })
            }
        }
    })
}

/// The JSON output for an account.
#[derive(Serialize)]
struct Report<'a> {
    id: UserId,
    email: &'a str,
    username: &'a str,
    full_name: Option<&'a str>,
    created_at: Time,
    email_verified_at: Option<Time>,
    last_login_at: Option<Time>,
    disabled_at: Option<Time>,
    operator_since: Option<Time>,
}

fn report(user: &User) -> Report<'_> {
    Report {
        id: user.id,
        email: &user.email,
        username: &user.username,
        full_name: user.full_name.as_deref(),
        created_at: user.created_at,
        email_verified_at: user.email_verified_at,
        last_login_at: user.last_login_at,
        disabled_at: user.disabled_at,
        operator_since: user.operator_since,
    }
}

fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Lists accounts, one per line.
pub async fn list(app: &App, filter: &Filter, as_json: bool) -> Result<(), String> {
    let mut after = None;
    loop {
        let listed = users::list_after(&app.operators, filter, after).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let Some(last) = listed.last() else { return Ok(()) };
        after = Some(last.id);
        for user in &listed {
            super::print(&if as_json { to_json(&report(user))? } else { line(user) });
        }
    }
}

/// Returns an account's id, address, username, and state as one line.
fn line(user: &User) -> String {
    let marks = [
        user.email_verified_at.is_none().then_some("address not verified"),
        user.operator_since.is_some().then_some("operator"),
        user.disabled_at.is_some().then_some("disabled"),
    ];
    let marks: Vec<_> = marks.into_iter().flatten().collect();
    format!("{}  {}  {}  {}", user.id, user.email, user.username, marks.join(", ")).trim_end().to_owned()
}

async fn show(app: &App, user: &OneUser, as_json: bool) -> Result<(), String> {
    let id = user.find(app).await?.id;
    let detail = users::read(&app.operators, id).await.map_err(|error| error.to_string())?;
    let detail = detail.ok_or_else(|| format!("account {id} doesn't exist"))?;
    super::print(&if as_json { detail_json(&detail)? } else { text(&detail) });
    Ok(())
}

fn detail_json(detail: &UserDetail) -> Result<String, String> {
    let UserDetail { user, second_factor, sessions, memberships } = detail;
    let memberships = memberships.iter().map(|membership| {
        json!({"id": membership.organization_id, "name": membership.organization, "role": membership.role.as_str()})
    });
    let more = json!({"second_factor": second_factor.is_asked_for(), "sessions": sessions,
                      "organizations": memberships.collect::<Value>()});
    report_with(user, more)
}

/// Returns the JSON output for an account, with these additional members.
fn report_with(user: &User, more: Value) -> Result<String, String> {
    let mut value = serde_json::to_value(report(user)).map_err(|error| error.to_string())?;
    if let (Value::Object(members), Value::Object(more)) = (&mut value, more) {
        members.extend(more);
    }
    Ok(value.to_string())
}

fn text(detail: &UserDetail) -> String {
    let UserDetail { user, second_factor, sessions, memberships } = detail;
    let or = |time: Option<Time>, none: &str| time.map_or_else(|| none.to_owned(), |time| time.to_string());
    let mut lines = vec![
        format!("{} ({}), {}", user.username, user.id, user.email),
        format!("Created        {}", user.created_at),
        format!("Verified       {}", or(user.email_verified_at, "no")),
        format!("Last login     {}", or(user.last_login_at, "never")),
        format!("Disabled       {}", or(user.disabled_at, "no")),
        format!("Operator       {}", or(user.operator_since, "no")),
        format!("Second factor  {}", if second_factor.is_asked_for() { "yes" } else { "no" }),
        format!("Sessions       {sessions}"),
    ];
    for membership in memberships {
        let (role, name, id) =
            (membership.role.as_str(), &membership.organization, membership.organization_id);
        lines.push(format!("Organization   {name} ({id}), {role}"));
    }
    lines.join("\n")
}

fn print_created(created: &CreatedUser, as_json: bool) -> Result<(), String> {
    let CreatedUser { user, link, link_expires_at } = created;
    super::print(&if as_json {
        report_with(user, json!({"link": link, "link_expires_at": link_expires_at}))?
    } else {
        let role = if user.operator_since.is_some() { ", an operator," } else { "" };
        format!(
            "{}{role} has an account with the username {}. Give them this link to choose a password; it works once, until \
             {link_expires_at}:\n{link}",
            user.email, user.username
        )
    });
    Ok(())
}

/// Prints a change to an account: its address, followed by these words.
pub fn print_change(
    change: Result<UserChange, kernel::error::Error>,
    as_json: bool,
    words: impl FnOnce(&UserChange) -> String,
) -> Result<(), String> {
    let change = change.map_err(|error| error.to_string())?;
    super::print(&if as_json {
        let (already, ended) = (change.was_unchanged, change.ended_sessions);
        report_with(&change.user, json!({"already": already, "ended_sessions": ended}))?
    } else {
        format!("{} {}.", change.user.email, words(&change))
    });
    Ok(())
}
