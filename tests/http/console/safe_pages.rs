//! Opening a page changes nothing and signs no one in, from whichever site the browser comes. A provider's answer to a
//! sign-on that this browser has begun is the exception (docs/security.md#the-console).

use http::Method;
use tollkeeper::console::routes;
use tollkeeper::db::sql;
use tollkeeper::ids::UserId;

use super::access::{operators, path_of};
use crate::access::matrix::scene::{Caller, Scene};
use support::console::Browser;
use support::http::Answer;
use support::identity_provider::{IdentityProvider, ProvidersFile};
use support::stripe::with_payments;
use support::world::World;
use support::{Database, on_each_database};

/// Columns of a session that its own pages write: its last use.
const LAST_USE: [&str; 3] = ["last_seen_at", "address", "user_agent"];

/// Returns all rows of each table as text, but for the last use of sessions.
async fn contents(world: &World) -> Vec<(String, Option<String>)> {
    let is_sqlite = world.backend == "sqlite";
    let mut tx = world.app.db.read().await.unwrap();
    let tables = if is_sqlite {
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    } else {
        "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
    };
    let tables: Vec<(String,)> = sql(tables).all(&mut tx).await.unwrap();
    let mut contents = Vec::new();
    for (table,) in tables {
        let columns = if is_sqlite {
            format!("SELECT name FROM pragma_table_info('{table}')")
        } else {
            format!(
                "SELECT CAST(column_name AS TEXT) FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position"
            )
        };
        let columns: Vec<(String,)> = sql(columns).all(&mut tx).await.unwrap();
        let is_compared = |name: &String| table != "sessions" || !LAST_USE.contains(&name.as_str());
        let columns = columns.into_iter().map(|(name,)| name).filter(is_compared);
        let texts = columns.map(|name| match is_sqlite {
            true => format!("quote(\"{name}\")"),
            false => format!("COALESCE(CAST(\"{name}\" AS TEXT), 'NULL')"),
        });
        let row = texts.collect::<Vec<_>>().join(" || ',' || ");
        let all = if is_sqlite { "group_concat(line, ';')" } else { "string_agg(line, ';')" };
        let query = format!("SELECT {all} FROM (SELECT {row} AS line FROM {table} ORDER BY 1) AS in_order");
        let (rows,): (Option<String>,) = sql(query).one(&mut tx).await.unwrap();
        contents.push((table, rows));
    }
    contents
}

/// Returns the names of the cookies that an answer sets, without those that it removes.
fn set_cookies(answer: &Answer) -> Vec<String> {
    let set = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let kept = set.filter(|value| !value.contains("Max-Age=0"));
    kept.map(|value| value.split('=').next().unwrap().to_owned()).collect()
}

/// A person whose browser is led to pages, or a browser in which no one is signed in.
struct Visitor<'a> {
    name: &'static str,
    caller: &'a Caller,
    browser: Browser,
    session: String,
}

async fn visitor<'a>(world: &World, name: &'static str, caller: &'a Caller) -> Visitor<'a> {
    let user_id = UserId::parse(&caller.user_id).unwrap();
    let (browser, session) = world.browser_session(user_id, false).await;
    Visitor { name, caller, browser, session: session.to_string() }
}

#[on_each_database]
fn no_page_changes_anything_whatever_site_opens_it(database: Database) {
    let file = ProvidersFile::new();
    let path = file.path();
    let settings = [("TOLLKEEPER_LIMITS__ENABLED", "false"), ("TOLLKEEPER_SIGN_IN__PROVIDERS_FILE", &*path)];
    with_payments(database, &settings, async |world| {
        let provider = IdentityProvider::start().await;
        file.write(&world, &[("acme", &provider.issuer, "provision = \"any\"")]);
        let scene = Scene::new(&world).await;
        let owner = scene.callers.iter().find(|caller| caller.head == "oo").unwrap();
        let operators = operators(&world, owner).await;
        let visitors = [
            visitor(&world, "owner", owner).await,
            visitor(&world, "operator", &operators[0]).await,
            Visitor { browser: Browser::signed_out(), ..visitor(&world, "no one", owner).await },
        ];
        let before = contents(&world).await;
        let mut opened = [0; 3];
        for site in [Some("cross-site"), Some("same-site"), Some("none"), None, Some("same-origin")] {
            for route in routes::table().into_iter().filter(|route| route.method == Method::GET) {
                for (visitor, opened) in visitors.iter().zip(&mut opened) {
                    let target = scene.targets(route.path).swap_remove(0);
                    let Visitor { name, caller, browser, session } = visitor;
                    let path = path_of(&route, &target, &caller.user_id, &caller.key_id, session);
                    let next = "/console/account/connections/new/acme";
                    let path = format!("{path}?code=c0de&state=x&next={next}");
                    let call = browser.sends(world.call(Method::GET, &path));
                    let call = call.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document");
                    let call = match site {
                        Some(site) => call.header("sec-fetch-site", site),
                        None => call,
                    };
                    let answer = call.send().await;
                    *opened += usize::from(answer.status == 200);
                    let begins = site == Some("same-origin") && route.path.ends_with("/{provider_id}");
                    let mut set = set_cookies(&answer);
                    set.retain(|cookie| !begins || cookie != "tollkeeper-sign-on");
                    assert_eq!(set, [""; 0], "{name} opens {path} from {site:?}");
                }
            }
            let after = contents(&world).await;
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(before, after, "pages that are opened from {site:?} change {}", before.0);
            }
            assert_eq!(before.len(), after.len());
        }
        // Most pages are there, with all their contents; without a person, those of the sign-in.
        let [owner, operator, nobody] = opened.map(|count: usize| count / 5);
        assert!(owner > 60 && operator > 30 && nobody >= 3, "{opened:?}");
    });
}
