//! Tests every restriction of a key at every entrance: allowed, denied and at the limit, as a table in
//! `restrictions.txt`.
//!
//! The first two columns are the case, the others its results.
//! `TOLLKEEPER_TEST_BLESS=1 cargo test --test http restrictions` rewrites the results. Review the diff like
//! any other change of the rights of keys.

use http::Method;
use serde_json::{Map, Value, json};
use tollkeeper::accounts::jwt::TokenKind;

use support::http::Call;
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

const GOLDEN: &str = "tests/http/service/restrictions.txt";

/// The limits of management calls are switched off, because creating this many keys would exceed them.
/// Restrictions apply anyway.
const SETTINGS: &[(&str, &str)] =
    &[("TOLLKEEPER_TRUSTED_PROXIES", "10.0.0.0/8"), ("TOLLKEEPER_LIMITS__ENABLED", "false")];

const HEADING: &str = "What an API key's restrictions do at each entrance: ok, or the code of the refusal; - where the case is impossible.

  list          GET /v1/models                    manage        GET of the key's own project
  model         GET /v1/models/svc-1              authorize     POST /service/v1/authorize, a chat with svc-1
                                                  forward-auth  GET /service/v1/forward-auth, the same

  from=A        the client is at A: the TCP peer, `client_address`, the proxy's `X-Forwarded-For`
  hops=A, B     a trusted proxy sends this `X-Forwarded-For`
  unasked=A     the client itself sends this `X-Forwarded-For`, from 198.51.100.7
  nowhere       the client's address is unknown
  calls=N       so many calls have gone before; after=MS: so many milliseconds ago
  model=, operation=, tokens=  other than svc-1, chat and none
";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entrance {
    List,
    Model,
    Manage,
    Authorize,
    ForwardAuth,
}

impl Entrance {
    const ALL: [Self; 5] = [Self::List, Self::Model, Self::Manage, Self::Authorize, Self::ForwardAuth];

    fn is_public(self) -> bool {
        matches!(self, Self::List | Self::Model | Self::Manage)
    }
}

/// The attempt, parsed from the second column.
#[derive(Default, Debug)]
struct Attempt {
    from: Option<String>,
    hops: Option<String>,
    unasked: Option<String>,
    nowhere: bool,
    calls: usize,
    after: i64,
    model: Option<String>,
    operation: Option<String>,
    tokens: Option<i64>,
}

impl Attempt {
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        if let Some(hops) = text.strip_prefix("hops=") {
            found.hops = Some(hops.to_owned());
            return found;
        }
        for word in text.split(' ') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "from" => found.from = Some(value.to_owned()),
                "unasked" => found.unasked = Some(value.to_owned()),
                "nowhere" => found.nowhere = true,
                "calls" => found.calls = value.parse().unwrap(),
                "after" => found.after = value.parse().unwrap(),
                "model" => found.model = Some(value.to_owned()),
                "operation" => found.operation = Some(value.to_owned()),
                "tokens" => found.tokens = value.parse().ok(),
                other => panic!("{other} in {text}"),
            }
        }
        found
    }

    /// Returns `true` if the case exists at this entrance.
    fn can_be_at(&self, entrance: Entrance) -> bool {
        match entrance {
            _ if entrance.is_public() => !self.nowhere,
            // The body of `authorize` contains the address itself, not its source.
            Entrance::Authorize => self.hops.is_none() && self.unasked.is_none(),
            // The proxy's value applies; the row `hops` is about a proxy that forwards its input.
            _ => self.unasked.is_none(),
        }
    }
}

/// Returns the body of the key in the first column.
fn key_body(restriction: &str, world: &World) -> Value {
    let mut body = json!({"name": "k"});
    if let Some(words) = restriction.strip_prefix("permissions ") {
        body["permissions"] = words.split(' ').collect();
    } else if let Some(ms) = restriction.strip_prefix("expires ") {
        body["expires_at"] = json!(world.clock.now().plus_ms(ms.parse().unwrap()).to_string());
    } else {
        let restrictions: Map<_, _> = serde_json::from_str(&format!("{{{restriction}}}")).unwrap();
        body["restrictions"] = restrictions.into();
    }
    body
}

#[on_each_database]
fn restrictions_hold_at_every_entrance(database: Database) {
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    database.run(SETTINGS, async |world| {
        let mut ada = world.user("ada").await;
        let rows = golden.lines().skip_while(|line| !line.starts_with("== "));
        let (mut text, mut cases) = (HEADING.to_owned(), 0);
        for line in rows {
            let cells: Vec<_> = line.split(" | ").map(str::trim).collect();
            let (false, [restriction, tried, ..]) = (line.starts_with("== "), &cells[..]) else {
                text.push_str(&heading(line));
                continue;
            };
            let mut row = format!("{restriction:44} | {tried:44}");
            for entrance in Entrance::ALL {
                let attempt = Attempt::parse(tried);
                let outcome = if attempt.can_be_at(entrance) {
                    cases += 1;
                    // Each case has its own organization, because an organization shares the rates of models.
                    ada.access_token = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
                    let place = world.place(&ada, &format!("Case {cases}")).await;
                    outcome(&world, &ada, &place, restriction, &attempt, entrance).await
                } else {
                    "-".to_owned()
                };
                row.push_str(&format!(" | {outcome:18}"));
            }
            text.push_str(&format!("{}\n", row.trim_end()));
        }
        text.push_str(&format!("\n{cases} cases\n"));
        compare(&world, &golden, &text);
    });
}

/// Returns a section's heading with the column headings, or nothing for other lines between rows.
fn heading(line: &str) -> String {
    if !line.starts_with("== ") {
        return String::new();
    }
    // Removes the previous column headings.
    let title = line.split("  ").next().unwrap();
    let columns =
        ["list", "model", "manage", "authorize", "forward-auth"].map(|name| format!(" | {name:18}"));
    format!("\n{}\n", format!("{title:91}{}", columns.concat()).trim_end())
}

fn compare(world: &World, golden: &str, found: &str) {
    if std::env::var_os("TOLLKEEPER_TEST_BLESS").is_some() {
        std::fs::write(GOLDEN, found).unwrap();
    } else if found != golden {
        let wrong: Vec<_> = found.lines().filter(|line| !golden.contains(line)).collect();
        panic!("on {}, these lines differ from {GOLDEN}:\n{}", world.backend, wrong.join("\n"));
    }
}

/// Returns the result of the last call with a new key.
async fn outcome(
    world: &World,
    ada: &TestUser,
    place: &Place,
    restriction: &str,
    attempt: &Attempt,
    entrance: Entrance,
) -> String {
    let (_, key) = world.key(ada, place, &key_body(restriction, world)).await;
    let key = key.as_str();
    for _ in 0..attempt.calls {
        assert_eq!(code(call(world, place, key, attempt, entrance)).await, "ok", "{restriction} {attempt:?}");
    }
    world.clock.advance_ms(attempt.after);
    code(call(world, place, key, attempt, entrance)).await
}

fn call(world: &World, place: &Place, key: &str, attempt: &Attempt, entrance: Entrance) -> Call {
    let (operation, model) = (attempt.operation.as_deref().unwrap_or("chat"), attempt.model.as_deref());
    let fitting = match operation {
        "embeddings" => Some("svc-embedding-1"),
        "chat" => Some("svc-1"),
        _ => None,
    };
    let used = model.or(fitting);
    let address = attempt.hops.is_none() && !attempt.nowhere;
    let address = address.then(|| attempt.from.as_deref().unwrap_or("203.0.113.7"));
    match entrance {
        Entrance::Authorize => {
            let body = json!({"credential": key, "client_address": address, "operation": operation, "reserve": false, "model": used,
                "max_tokens": attempt.tokens});
            world.ask("/service/v1/authorize", &body)
        }
        Entrance::ForwardAuth => {
            let mut url = format!("/service/v1/forward-auth?operation={operation}&reserve=false");
            url.extend(used.map(|model| format!("&model={model}")));
            url.extend(attempt.tokens.map(|tokens| format!("&max_tokens={tokens}")));
            let call = Call::new(&world.service, Method::GET, &url).bearer(key);
            let call = call.header("x-tollkeeper-service-token", world.app.api.service_token.expose());
            match attempt.hops.as_deref().or(address) {
                Some(hops) => call.header("x-forwarded-for", hops),
                None => call,
            }
        }
        Entrance::List | Entrance::Model | Entrance::Manage => {
            let path = match entrance {
                Entrance::List => "/v1/models".to_owned(),
                Entrance::Model => format!("/v1/models/{}", model.unwrap_or("svc-1")),
                _ => place.project_path(),
            };
            let call = world.get(&path).bearer(key);
            match (&attempt.hops, &attempt.unasked) {
                (Some(hops), _) => call.from("10.0.0.1").header("x-forwarded-for", hops),
                (_, Some(hops)) => call.from("198.51.100.7").header("x-forwarded-for", hops),
                _ => call.from(address.unwrap_or("203.0.113.7")),
            }
        }
    }
}

/// Returns `ok`, or the code of the refusal.
async fn code(call: Call) -> String {
    let answer = call.send().await;
    let decision = answer.json()["code"].as_str().map(str::to_owned);
    match answer.status {
        200 => decision.unwrap_or_else(|| "ok".to_owned()),
        _ => answer.code(),
    }
}
