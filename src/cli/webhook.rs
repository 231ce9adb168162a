//! `tollkeeper webhook …`

mod deliveries;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::config::Config;
use db::Page;
use events::EventType;
use kernel::clock::Time;
use kernel::ids::{DeliveryId, EventId, WebhookId};
use kernel::naming;
use kernel::patch::Patch;
use kernel::version::Expected;
use trail::Trail;
use webhooks::Webhooks;
use webhooks::deliveries::State;
use webhooks::endpoints::{self, Change, Created, New, Rotated, Webhook};
use webhooks::owners::Owner;
use webhooks::rules::urls::WebhookUrl;
use webhooks::targets::Target;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a webhook of the installation for these events of all organizations, and for the installation's
    /// own events. Prints its secret, which can't be shown again
    Create(Create),
    /// List the webhooks of the installation, newest first
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a webhook of the installation
    Show(One),
    /// Update a webhook of the installation; omitted options keep their values
    Update(Update),
    /// Rotate the secret of a webhook of the installation, and print it; the previous one also signs for a
    /// day
    Rotate(One),
    /// Delete a webhook of the installation and its deliveries
    Delete(One),
    /// Make a running server send a test event
    Test(One),
    /// List deliveries to a webhook of the installation, newest first
    Deliveries {
        #[command(flatten)]
        one: One,
        /// Show only deliveries in this state
        #[arg(long, value_name = "pending|succeeded|failed", value_parser = state)]
        state: Option<State>,
        /// Maximum number of deliveries
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
    },
    /// Make a running server redeliver an event, or all that failed since a time
    Redeliver {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        what: What,
    },
}

#[derive(Debug, Args)]
pub struct One {
    /// The webhook's id
    #[arg(value_name = "ID", value_parser = webhook)]
    id: WebhookId,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Create {
    /// The receiver's URL, such as `https://example.com/events`
    #[arg(long, value_name = "URL", value_parser = url)]
    url: WebhookUrl,
    /// The event types, separated by commas, such as invoice.paid,audit.drift
    #[arg(long, value_name = "TYPES", value_parser = event, value_delimiter = ',', required = true)]
    events: Vec<EventType>,
    /// A description, up to 1,000 characters
    #[arg(long, value_name = "TEXT", value_parser = description)]
    description: Option<String>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Update {
    #[command(flatten)]
    one: One,
    /// The receiver's URL
    #[arg(long, value_name = "URL", value_parser = url)]
    url: Option<WebhookUrl>,
    /// All event types to receive from now on, separated by commas
    #[arg(long, value_name = "TYPES", value_parser = event, value_delimiter = ',')]
    events: Option<Vec<EventType>>,
    /// A description, up to 1,000 characters; an empty one removes it
    #[arg(long, value_name = "TEXT", value_parser = description)]
    description: Option<String>,
    /// Enable the webhook
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Disable the webhook: it receives no events, and pending deliveries are given up
    #[arg(long)]
    disable: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct What {
    /// The id of a delivery to redeliver
    #[arg(long, value_name = "ID", value_parser = delivery)]
    delivery: Option<DeliveryId>,
    /// Redeliver all failed deliveries of events since this date or timestamp
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    since: Option<Time>,
}

fn webhook(text: &str) -> Result<WebhookId, String> {
    WebhookId::parse(text).ok_or_else(|| {
        "a webhook's id starts with `webhook_` and has 26 more characters; `webhook list` shows them"
            .to_owned()
    })
}

fn delivery(text: &str) -> Result<DeliveryId, String> {
    DeliveryId::parse(text).ok_or_else(|| {
        "a delivery's id starts with `delivery_` and has 26 more characters; `webhook deliveries` shows them"
            .to_owned()
    })
}

fn url(text: &str) -> Result<WebhookUrl, String> {
    WebhookUrl::parse(text).ok_or_else(|| {
        "write a URL such as https://example.com/events, without a login or fragment".to_owned()
    })
}

fn event(text: &str) -> Result<EventType, String> {
    EventType::of_installation().find(|of| of.as_str() == text).ok_or_else(|| {
        let known: Vec<_> = EventType::of_installation().map(|of| of.as_str()).collect();
        format!("the types are {}", known.join(", "))
    })
}

fn state(text: &str) -> Result<State, String> {
    text.parse().map_err(|_| "the states are pending, succeeded, failed".to_owned())
}

fn description(text: &str) -> Result<String, String> {
    naming::description(text).map_err(|problem| format!("it {}", problem.message))
}

pub fn run(config: Config, command: Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = super::app(config).await?;
        let (webhooks, trail) = (&app.webhooks, &Trail::operator());
        match command {
            Command::Create(arguments) => create(webhooks, arguments, trail).await,
            Command::List { json } => list(webhooks, json, trail).await,
            Command::Show(One { id, json }) => {
                let found = endpoints::read(webhooks, Target::of_installation(id, trail)).await;
                print(&found.map_err(|error| error.to_string())?, webhooks, json)
            }
            Command::Update(arguments) => update(webhooks, arguments, trail).await,
            Command::Rotate(one) => rotate(webhooks, &one, trail).await,
            Command::Delete(One { id, json }) => {
                let target = Target::of_installation(id, trail);
                endpoints::delete(webhooks, target, &Expected::Any)
                    .await
                    .map_err(|error| error.to_string())?;
                report(json, &Deleted { id, deleted: true }, || format!("Deleted {id}."))
            }
            Command::Test(One { id, json }) => {
                let queued = endpoints::test(webhooks, Target::of_installation(id, trail), None).await;
                let queued = queued.map_err(|error| error.to_string())?.commit().await;
                let (event_id, delivery_id) = queued.map_err(|error| error.to_string())?;
                report(json, &Tested { event_id, delivery_id }, || {
                    format!("A running server sends {event_id}; `webhook deliveries {id}` shows the result.")
                })
            }
            Command::Deliveries { one, state, limit } => {
                deliveries::list(webhooks, &one, state, limit, trail).await
            }
            Command::Redeliver { one, what } => deliveries::redeliver(webhooks, &one, &what, trail).await,
        }
    })
}

/// Prints a result as JSON or as text.
fn report(as_json: bool, outcome: &impl Serialize, words: impl FnOnce() -> String) -> Result<(), String> {
    let text =
        if as_json { serde_json::to_string(outcome).map_err(|error| error.to_string())? } else { words() };
    super::print(&text);
    Ok(())
}

/// Rejects a URL that the configuration doesn't allow.
fn check(webhooks: &Webhooks, url: &WebhookUrl) -> Result<(), String> {
    url.check(webhooks.settings.allow_private)
        .map_err(|problem| format!("`--url` {} ({})", problem.message, problem.code))
}

/// Returns the types in the order of the contract, without duplicates.
fn ordered(named: &[EventType]) -> Vec<EventType> {
    EventType::of_installation().filter(|of| named.contains(of)).collect()
}

/// The JSON output of `create`.
#[derive(Serialize)]
struct CreatedReport<'a> {
    id: WebhookId,
    secret: String,
    url: &'a str,
    events: &'a [EventType],
    description: Option<&'a str>,
    created_at: Time,
}

async fn create(webhooks: &Webhooks, arguments: Create, trail: &Trail) -> Result<(), String> {
    let Create { url, events, description, json } = arguments;
    check(webhooks, &url)?;
    let description = description.filter(|text| !text.is_empty());
    let new = New { id: None, url, events: ordered(&events), description };
    let created = endpoints::create(webhooks, Owner::Installation(trail), new)
        .await
        .map_err(|error| error.to_string())?;
    let Created { webhook, secret } = created.commit().await.map_err(|error| error.to_string())?;
    let report_of = CreatedReport {
        id: webhook.id,
        secret: secret.expose(),
        url: webhook.url.as_str(),
        events: &webhook.events,
        description: webhook.description.as_deref(),
        created_at: webhook.created_at,
    };
    report(json, &report_of, || {
        format!("Created {} with the secret {}: it can't be shown again.", webhook.id, secret.expose())
    })
}

/// Number of webhooks or deliveries read at a time.
const PAGE_SIZE: i64 = 100;

async fn list(webhooks: &Webhooks, as_json: bool, trail: &Trail) -> Result<(), String> {
    for page in 1.. {
        let page = Page { page, page_size: PAGE_SIZE };
        let listed = endpoints::list(webhooks, Owner::Installation(trail), page)
            .await
            .map_err(|error| error.to_string())?;
        if listed.rows.is_empty() {
            break;
        }
        for row in &listed.rows {
            print(row, webhooks, as_json)?;
        }
    }
    Ok(())
}

/// The JSON output for a webhook.
#[derive(Serialize)]
struct Line<'a> {
    id: WebhookId,
    url: &'a str,
    events: &'a [EventType],
    description: Option<&'a str>,
    enabled: bool,
    disabled_reason: Option<&'static str>,
    failing_since: Option<Time>,
    previous_secret_ends_at: Option<Time>,
    created_at: Time,
    updated_at: Time,
}

fn print(webhook: &Webhook, webhooks: &Webhooks, as_json: bool) -> Result<(), String> {
    let now = webhooks.clock.now();
    let line = Line {
        id: webhook.id,
        url: webhook.url.as_str(),
        events: &webhook.events,
        description: webhook.description.as_deref(),
        enabled: webhook.is_enabled,
        disabled_reason: webhook.disabled_reason.map(|reason| reason.as_str()),
        failing_since: webhook.failing_since,
        previous_secret_ends_at: webhook.previous_ends_at.filter(|end| *end > now),
        created_at: webhook.created_at,
        updated_at: webhook.updated_at,
    };
    report(as_json, &line, || {
        let events: Vec<_> = webhook.events.iter().map(|of| of.as_str()).collect();
        let state = match (line.disabled_reason, line.failing_since) {
            (Some(reason), _) => format!("off ({reason})"),
            (None, Some(since)) => format!("on, failing since {since}"),
            (None, None) => "on".to_owned(),
        };
        format!("{}  {}  {state}  {}", line.id, line.url, events.join(","))
    })
}

async fn update(webhooks: &Webhooks, arguments: Update, trail: &Trail) -> Result<(), String> {
    let Update { one: One { id, json }, url, events, description, enable, disable } = arguments;
    if let Some(url) = &url {
        check(webhooks, url)?;
    }
    let change = Change {
        url,
        events: events.map(|named| ordered(&named)),
        description: match description {
            None => Patch::Keep,
            Some(text) if text.is_empty() => Patch::Clear,
            Some(text) => Patch::Set(text),
        },
        is_enabled: (enable || disable).then_some(enable),
    };
    let changed =
        endpoints::update(webhooks, Target::of_installation(id, trail), &Expected::Any, change).await;
    print(&changed.map_err(|error| error.to_string())?, webhooks, json)
}

/// The JSON output of `rotate`.
#[derive(Serialize)]
struct RotatedReport {
    id: WebhookId,
    secret: String,
    previous_secret_ends_at: Time,
}

async fn rotate(webhooks: &Webhooks, One { id, json }: &One, trail: &Trail) -> Result<(), String> {
    let rotated = endpoints::rotate(webhooks, Target::of_installation(*id, trail), &Expected::Any).await;
    let rotated = rotated.map_err(|error| error.to_string())?.commit().await;
    let Rotated { secret, previous_ends_at } = rotated.map_err(|error| error.to_string())?;
    let outcome =
        RotatedReport { id: *id, secret: secret.expose(), previous_secret_ends_at: previous_ends_at };
    report(*json, &outcome, || {
        format!(
            "{id} now has the secret {}: it can't be shown again. The previous one also signs until \
             {previous_ends_at}.",
            secret.expose()
        )
    })
}

/// The JSON output of `delete`.
#[derive(Serialize)]
struct Deleted {
    id: WebhookId,
    deleted: bool,
}

/// The JSON output of `test`.
#[derive(Serialize)]
struct Tested {
    event_id: EventId,
    delivery_id: DeliveryId,
}
