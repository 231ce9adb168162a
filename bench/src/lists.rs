//! Measures whether the latency of a page depends on the length of the list. Organizations of several sizes
//! are inserted directly into one database. The first page, the last page and a search of their lists are
//! then requested over HTTP from the running service.
//!
//! Only one request is in flight at a time. Each kind of request is sent for every size in turn, so that a
//! slow moment of the machine affects all sizes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tollkeeper::db::{Db, Settings, sql};

use crate::client::{self, Load, Target};
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::{Arguments, report, tenant};

/// The numbers of members and projects.
const SIZES: [(i64, i64); 3] = [(100, 100), (10_000, 1_000), (100_000, 10_000)];
/// The number of rows per transaction. Each row increments the organization's counter. On PostgreSQL, each
/// increment leaves a dead row until the commit.
const AT_ONCE: i64 = 1_000;
const PAGE_SIZE: i64 = 20;
const LIMITS: &str = "[limits]\nenabled = false\n";

/// A kind of request.
struct Case {
    label: &'static str,
    /// Returns the path below the organization's, given the numbers of members and projects.
    path: fn(i64, i64) -> String,
    /// Whether a plain member makes the request, instead of the owner.
    by_member: bool,
}

const CASES: [Case; 8] = [
    Case { label: "members, first page", path: |_, _| "/members".into(), by_member: false },
    Case {
        label: "members, last page",
        path: |members, _| format!("/members?page={}", members / PAGE_SIZE),
        by_member: false,
    },
    Case {
        label: "members, search for one",
        path: |members, _| format!("/members?search=m{members}x"),
        by_member: false,
    },
    Case { label: "projects, first page", path: |_, _| "/projects".into(), by_member: false },
    Case {
        label: "projects, last page",
        path: |_, projects| format!("/projects?page={}", projects / PAGE_SIZE),
        by_member: false,
    },
    Case {
        label: "projects, search for one",
        path: |_, projects| format!("/projects?search=p{projects}x"),
        by_member: false,
    },
    Case { label: "projects of a member", path: |_, _| "/projects".into(), by_member: true },
    Case { label: "organization, detail", path: |_, _| String::new(), by_member: false },
];

/// Fills the database, measures, and prints the results.
pub async fn run(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), LIMITS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let service = Tollkeeper::start(&this, &place, &arguments.database, &arguments.log, cores).await?;
    let settings = match arguments.database.as_str() {
        "sqlite" => Settings::Sqlite { path: place.join("tollkeeper.db") },
        url => Settings::Postgres { url: url.to_owned() },
    };
    let db = Db::open(&settings).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let mut tenants = Vec::new();
    for (members, projects) in SIZES {
        tenants.push(Tenant::fill(service.public, &db, members, projects).await?);
    }
    if db.is_postgres() {
        // Autovacuum would do this within a minute.
        write(&db, "ANALYZE").await?;
    }
    report::line(&[format!("filled in {:.0} s; p50 in µs", begin.elapsed().as_secs_f64())]);
    let mut head = vec!["members / projects".to_owned()];
    head.extend(SIZES.map(|(members, projects)| format!("{members}/{projects}")));
    head.push("last / first".into());
    report::line(&head);
    let length = Duration::from_secs_f64(arguments.seconds);
    let load = Load { connections: 1, length, never_sleep: cores.pinned && !db.is_postgres() };
    for case in &CASES {
        let mut rounds = vec![Vec::new(); tenants.len()];
        for _ in 0..arguments.rounds {
            for (tenant, medians) in tenants.iter().zip(&mut rounds) {
                let target = tenant.target(service.public, case);
                let sample = client::load(&target, service.server.id(), load).await?;
                medians.extend(report::percentile(&sample.latencies_us, 50));
            }
        }
        let medians: Vec<_> =
            rounds.into_iter().map(|medians| report::median(medians).unwrap_or(f64::NAN)).collect();
        let mut cells = vec![case.label.to_owned()];
        cells.extend(medians.iter().map(|microseconds| format!("{microseconds:.0}")));
        let ratio = medians.last().zip(medians.first()).map_or(f64::NAN, |(last, first)| last / first);
        cells.push(format!("{ratio:.2}"));
        report::line(&cells);
    }
    Ok(())
}

/// An organization of one size, with the tokens of its owner and of a plain member.
struct Tenant {
    path: String,
    members: i64,
    projects: i64,
    owner: String,
    member: String,
}

impl Tenant {
    /// Creates and fills an organization. The owner is one of the members. The plain member is another one,
    /// in five projects. Searches find the last other member and the last project.
    async fn fill(address: SocketAddr, db: &Db, members: i64, projects: i64) -> Result<Self, String> {
        let (owner_name, member_name) = (format!("owner{members}"), format!("member{members}"));
        let owner = tenant::person(address, &owner_name).await?;
        let member = tenant::person(address, &member_name).await?;
        let body = json!({"name": "Large", "settings": {"allow_public_projects": true}});
        let organization = tenant::post(address, "/v1/organizations", Some(&owner), &body).await?;
        let organization = tenant::text(&organization, "id")?;
        let join = "INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)";
        let plain = format!(
            "{join} SELECT '{organization}', u.id, 'member', 0, 0 FROM users u WHERE u.username = '{member_name}'"
        );
        write(db, &plain).await?;
        let (user, project) = (id("user_", members), id("proj_", members));
        for (first, last) in ranges(members - 2) {
            let series = series(first, last);
            let name = format!("'m' || CAST(i + 2 AS TEXT) || 'x' || '{members}'");
            let users = format!(
                "{series} INSERT INTO users
                     (id, email, email_folded, username, username_folded, password_hash, created_at)
                 SELECT {user}, {name} || '@example.com', {name} || '@example.com', {name}, {name}, 'x', 0 FROM n"
            );
            write(db, &users).await?;
            let join = format!("{series} {join} SELECT '{organization}', {user}, 'member', i, i FROM n");
            write(db, &join).await?;
        }
        for (first, last) in ranges(projects) {
            let series = series(first, last);
            let add = format!(
                "{series} INSERT INTO projects
                     (id, organization_id, name, name_folded, visibility, created_by, created_at, updated_at)
                 SELECT {project}, '{organization}', 'p' || CAST(i AS TEXT) || 'x', 'p' || CAST(i AS TEXT) || 'x',
                        CASE WHEN i % 2 = 0 THEN 'public' ELSE 'private' END, u.id, i, i
                 FROM n CROSS JOIN users u WHERE u.username = '{owner_name}'"
            );
            write(db, &add).await?;
        }
        let add = format!(
            "{} INSERT INTO project_members (project_id, user_id, role, added_at, updated_at)
             SELECT {project}, u.id, 'developer', i, i FROM n CROSS JOIN users u WHERE u.username = '{member_name}'",
            series(1, 5)
        );
        write(db, &add).await?;
        Ok(Self { path: format!("/v1/organizations/{organization}"), members, projects, owner, member })
    }

    fn target(&self, address: SocketAddr, case: &Case) -> Target {
        let path = format!("{}{}", self.path, (case.path)(self.members, self.projects));
        let token = if case.by_member { &self.member } else { &self.owner };
        let expected = if path.contains("search=") { "\"total\":1," } else { "\"SUCCESS\"" };
        Target::get(address, &path, Some(token), expected)
    }
}

/// Splits 1 to `last` into one range for each transaction.
fn ranges(last: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..(last + AT_ONCE - 1) / AT_ONCE).map(move |part| (part * AT_ONCE + 1, last.min((part + 1) * AT_ONCE)))
}

fn series(first: i64, last: i64) -> String {
    format!("WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})")
}

/// Returns an SQL expression for an id: a prefix and 26 digits, which are unique because of the tenant's size
/// and `i`.
fn id(prefix: &str, members: i64) -> String {
    let number = format!("CAST({} + i AS TEXT)", members * 1_000_000);
    format!("'{prefix}' || substr('{}' || {number}, length({number}) + 1)", "0".repeat(26))
}

async fn write(db: &Db, text: &str) -> Result<(), String> {
    let mut tx = db.write().await.map_err(|error| error.to_string())?;
    sql(text.to_owned()).execute(&mut tx).await.map_err(|error| format!("{error}: {text}"))?;
    tx.commit().await.map_err(|error| error.to_string())
}
