//! Query plans of lists. They use an index on the tenant, regardless of the size of the installation.

mod accounts;
mod audit_log;
mod bounds;
mod budgets;
mod call_log;
mod exports;
mod growth;
mod keys;
mod payments;
mod walks;
mod webhooks;

use http::Method;
use serde_json::json;
use tollkeeper::billing::rules::usage_groups::{Groups, Period, Subject};
use tollkeeper::billing::store::months;
use tollkeeper::billing::store::usage::reports;
use tollkeeper::db::{Error, FromRow, Row, Tx, sql};
use tollkeeper::ids::{OrganizationId, ProjectId};
use tollkeeper::tenants::store::members::Group;
use tollkeeper::tenants::store::projects::listing;
use tollkeeper::tenants::store::{invitations, navigation, organization_members as members, organizations};

use support::on_each_database;
use support::world::World;

/// The number of members of a large organization, whose list must never be sorted as a whole.
const STRANGERS: i64 = 6_000;
/// The number of members of a small organization, whose search must never read the members of others.
const MEMBERS: i64 = 20;

/// A step of a query plan, in the database's own format.
struct Step(String);

impl FromRow for Step {
    fn from_row(row: &Row) -> Result<Self, Error> {
        row.get("detail").or_else(|_| row.get("QUERY PLAN")).map(Self)
    }
}

async fn fill(tx: &mut Tx, organization: &str, from: i64, to: i64) {
    // An id consists of a prefix and 26 digits.
    let id =
        format!("'user_' || substr('{}' || CAST(i AS TEXT), length(CAST(i AS TEXT)) + 1)", "0".repeat(26));
    let series =
        format!("WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})");
    let name = "'m' || CAST(i AS TEXT)";
    let users = format!(
        "{series} INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at)
         SELECT {id}, {name} || '@example.com', {name} || '@example.com', {name}, {name}, 'x', 0 FROM n"
    );
    sql(users).execute(tx).await.unwrap();
    let join = format!(
        "{series} INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)
         SELECT '{organization}', {id}, 'member', i, i FROM n"
    );
    sql(join).execute(tx).await.unwrap();
    let invite = format!(
        "{series} INSERT INTO invitations (id, organization_id, email, email_folded, role, invited_by, created_at, expires_at)
         SELECT 'inv_' || CAST(i AS TEXT), '{organization}', 'x', 'x' || CAST(i AS TEXT), 'member', {id}, 0, 1 FROM n"
    );
    sql(invite).execute(tx).await.unwrap();
}

/// A parameter that is replaced by 32 bytes.
const BYTES: &str = "32 bytes";

/// Returns the plan of a statement with these parameters, one step per line.
async fn plan(world: &World, text: &str, parameters: &[&str]) -> String {
    let explain = if world.app.db.is_postgres() { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
    let mut statement = sql(format!("{explain} {text}"));
    if world.app.db.is_postgres() {
        // PostgreSQL plans heavy statements freely. For all others, our settings make it use indexes.
        statement = statement.heavy();
    }
    for parameter in parameters {
        statement = match parameter.parse::<i64>() {
            Ok(number) => statement.bind(number),
            Err(_) if *parameter == BYTES => statement.bind([7_u8; 32]),
            Err(_) => statement.bind(*parameter),
        };
    }
    // A read handle refuses a statement that would write, even if the statement is only explained.
    let db = &world.app.db;
    let tx = if text.starts_with("SELECT") { db.read().await } else { db.write().await };
    let steps: Vec<Step> = statement.all(&mut tx.unwrap()).await.unwrap();
    steps.into_iter().map(|Step(step)| step).collect::<Vec<_>>().join("\n")
}

#[on_each_database]
async fn lists_use_the_tenants_index(world: World) {
    let ada = world.user("ada").await;
    let (mine, other) = (world.organization(&ada, "Mine").await, world.organization(&ada, "Other").await);
    for (organization, from, to) in [(&other, 1, STRANGERS), (&mine, STRANGERS + 1, STRANGERS + MEMBERS)] {
        for from in (from..=to).step_by(500) {
            let mut tx = world.app.db.write().await.unwrap();
            fill(&mut tx, organization, from, to.min(from + 499)).await;
            tx.commit().await.unwrap();
        }
    }
    let mut tx = world.app.db.write().await.unwrap();
    sql("ANALYZE").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();

    let (by_tenant, by_person) = ("organization_members_list", "organization_members_user_id");
    let me = ada.id.to_string();
    let cases: [(&str, &[&str], &str, usize); 14] = [
        // Each case has a statement, its parameters, the expected index, and the number of allowed sorts: of
        // the page itself, of the matches, or of one user's memberships.
        (&OrganizationId::statements().from_start, &[&other, "20", "100"], by_tenant, 1),
        (&OrganizationId::statements().from_end, &[&other, "20", "100"], by_tenant, 1),
        (&OrganizationId::statements().filtered, &[&mine, "", "%m6%", "20", "0"], "organization_members_", 1),
        (
            &OrganizationId::statements().filtered_count,
            &[&mine, "member", "%m6%"],
            "organization_members_|PRIMARY KEY",
            0,
        ),
        (organizations::LIST, &[&me, "", "%", "", "20", "0"], by_person, 1),
        (organizations::COUNT, &[&me, "", "%", ""], by_person, 0),
        (invitations::OPEN_FOR_ADDRESS, &["x7", "0"], "invitations_email_folded", 1),
        (&invitations::listing::LIST, &[&other, "0", "", "20", "100"], "invitations_list", 1),
        (&invitations::listing::LIST, &[&mine, "0", "expired", "20", "0"], "invitations_list", 1),
        (&invitations::listing::COUNT, &[&mine, "0", "pending"], "invitations_list", 0),
        // Statements that change a membership.
        (members::MEMBER_AND_CALLER, &[&other, &me, "x7"], "organization_members_owners", 0),
        (invitations::END_SENT, &[&other, "x7", "admin", "0"], "invitations_sent", 0),
        (invitations::END_WITH_MEMBER, &[&other, "x7", "x7", "0"], "invitations_sent", 1),
        (
            invitations::END_WITH_MEMBER,
            &[&other, "x7", "x7", "0"],
            "invitations_open|invitations_email_folded",
            1,
        ),
    ];
    for (text, parameters, index, sorts) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        // `page` contains only the rows of the page.
        let scans = |line: &&str| line.contains("Seq Scan") || line.starts_with("SCAN ");
        let scanned: Vec<_> = plan.lines().filter(scans).filter(|line| *line != "SCAN page").collect();
        assert!(scanned.is_empty(), "{what}");
        let found = plan.matches("Sort Key").count() + plan.matches("TEMP B-TREE").count();
        assert!(found <= sorts, "{what}");
    }
}

#[on_each_database]
async fn pages_of_a_large_organization_need_few_statements(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Large").await;
    let mut tx = world.app.db.write().await.unwrap();
    fill(&mut tx, &organization, 1, 2_000).await;
    tx.commit().await.unwrap();
    let path = format!("/v1/organizations/{organization}/members");
    let names = async |query: &str| {
        let before = world.app.db.statement_count();
        let data = world.get(&format!("{path}{query}")).bearer(&ada.access_token).data().await;
        let rows = data["members"].as_array().unwrap().clone();
        let names: Vec<_> = rows.iter().map(|row| row["username"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), data["total"].as_i64().unwrap(), world.app.db.statement_count() - before)
    };
    // The statements read the role, the count in the organization's row, and the page. The session is cached.
    assert_eq!(names("?page_size=3").await, ("ada m2000 m1999".into(), 2_001, 3));
    assert_eq!(names("?page_size=3&page=2").await, ("m1998 m1997 m1996".into(), 2_001, 3));
    assert_eq!(names("?page_size=3&page=667").await, ("m3 m2 m1".into(), 2_001, 3));
    assert_eq!(names("?page_size=3&page=666").await, ("m6 m5 m4".into(), 2_001, 3));
    assert_eq!(names("?page_size=3&page=668").await, (String::new(), 2_001, 2));
    assert_eq!(names("?search=m1999").await, ("m1999".into(), 1, 3));
}

/// Inserts projects of an organization, one tenth of them public, members of the first one, and usage on
/// three days in each.
async fn fill_projects(tx: &mut Tx, organization: &str, owner: &str, first: i64, from: i64, to: i64) {
    let series =
        format!("WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})");
    let name = "'p' || CAST(i AS TEXT)";
    // An id consists of a prefix and 26 digits.
    let id = |prefix: &str, number: &str| {
        format!(
            "'{prefix}_' || substr('{}' || CAST({number} AS TEXT), length(CAST({number} AS TEXT)) + 1)",
            "0".repeat(26)
        )
    };
    let (project, user) = (id("proj", "i"), id("user", "i"));
    let projects = format!(
        "{series} INSERT INTO projects (id, organization_id, name, name_folded, visibility, created_by, created_at, updated_at)
         SELECT {project}, '{organization}', {name}, {name}, CASE WHEN i % 10 = 0 THEN 'public' ELSE 'private' END,
                '{owner}', i, i FROM n"
    );
    sql(projects).execute(tx).await.unwrap();
    let first = id("proj", &first.to_string());
    let members = format!(
        "{series} INSERT INTO project_members (project_id, user_id, role, added_at, updated_at)
         SELECT {first}, {user}, 'viewer', i, i FROM n"
    );
    sql(members).execute(tx).await.unwrap();
    let used = format!(
        "{series} INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day,
                 month, requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         SELECT '{organization}', {project}, 'key', 'm', 0, 'chat', d.day, 0, 1, 1, 1, 1, 0 FROM n
         CROSS JOIN (SELECT 1 AS day UNION ALL SELECT 2 UNION ALL SELECT 3) d"
    );
    sql(used).execute(tx).await.unwrap();
    let components = "INSERT INTO usage_daily_parts (organization_id, project_id, day, api_key_id, model, price_version,
                          kind, month, component, quantity)
         SELECT organization_id, project_id, day, api_key_id, model, price_version, kind, month, 'reasoning', 1
         FROM usage_daily WHERE organization_id = $1 ON CONFLICT DO NOTHING";
    sql(components).bind(organization).execute(tx).await.unwrap();
}

#[on_each_database]
async fn project_lists_use_an_index_and_sort_their_page_only(world: World) {
    let ada = world.user("ada").await;
    let (mine, other) = (world.organization(&ada, "Mine").await, world.organization(&ada, "Other").await);
    let me = ada.id.to_string();
    for (organization, from, to) in [(&other, 1, STRANGERS), (&mine, STRANGERS + 1, STRANGERS + MEMBERS)] {
        // Each row adds one to a count. Several transactions are used, because one transaction would keep
        // every version of that row.
        for from_here in (from..=to).step_by(500) {
            let to_here = to.min(from_here + 499);
            let mut tx = world.app.db.write().await.unwrap();
            fill(&mut tx, organization, from_here, to_here).await;
            fill_projects(&mut tx, organization, &me, from, from_here, to_here).await;
            tx.commit().await.unwrap();
        }
    }
    let mut tx = world.app.db.write().await.unwrap();
    sql("ANALYZE").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();

    let crowd = format!("proj_{:026}", 1);
    let few = format!("proj_{:026}", STRANGERS + 1);
    let user = format!("user_{:026}", 7);
    let visible = listing::visible_page();
    let [newest, oldest] = [false, true].map(listing::visible_window);
    let by_time = "projects_organization_id_created_at";
    let in_organization = "projects_organization_id_";
    let everything = Groups { period: Period::Week, model: true, project: true, api_key: true };
    let by_day = reports::organization_text(Subject::Organization.by_day(), false, 0);
    let by_everything = reports::organization_text(everything, false, 0);
    let named = reports::organization_text(everything, true, 0);
    let listed = [Subject::Organization.by_day(), everything]
        .map(|groups| reports::organization_text(groups, false, 2));
    // SQLite stores the rows of a project next to each other, but PostgreSQL doesn't.
    let [sums_by_project, by_project] = match world.app.db.is_postgres() {
        true => ["usage_daily_sums_", "usage_daily_"],
        false => ["usage_daily_sums_|PRIMARY KEY", "PRIMARY KEY"],
    };
    let of_project = reports::project_text(Subject::Project.by_day());
    let components = [false, true].map(|of_project| reports::components_text(everything, of_project));
    let by_month = Groups { period: Period::Month, ..everything };
    let by_month = [reports::organization_text(by_month, true, 0), reports::project_text(by_month)];
    let months = ["31"; 12];
    let of_months = [[&*mine, "1", "3", "100"].as_slice(), &months].concat();
    let of_project_months = [[&*other, &*crowd, "1", "3", "100"].as_slice(), &months].concat();
    let cases: [(&str, &[&str], &[&str], usize); 29] = [
        // Each case has a statement, its parameters, the expected indexes, and the number of allowed sorts:
        // of the page, or of the matches.
        (&listing::FROM_START, &[&other, "20", "100"], &[by_time], 1),
        (&listing::FROM_END, &[&other, "20", "100"], &[by_time], 1),
        (&listing::SEARCHED, &[&mine, "%p6%", "20", "0"], &[in_organization], 1),
        (listing::SEARCHED_COUNT, &[&mine, "%p6%"], &[in_organization], 0),
        (&visible, &[&other, &user, "%", "", "20", "0"], &["project_members_user_id", "projects_public"], 1),
        // The member's own projects and the page of both kinds are sorted. The public projects are read in
        // the order of the index.
        (&newest, &[&other, &user, "20", "20", "0"], &["project_members_user_id", "projects_public"], 4),
        (&oldest, &[&other, &user, "20", "20", "0"], &["project_members_user_id", "projects_public"], 4),
        (listing::VISIBLE_TOTAL, &[&other, &user], &["project_members_user_id"], 0),
        // The newest memberships, which each page of the console reads. SQLite reads them in the order of the
        // index.
        (
            navigation::READ,
            &[&me, &mine, &few, "", "20"],
            &["organization_members_user_id"],
            usize::from(world.app.db.is_postgres()),
        ),
        (&ProjectId::statements().from_start, &[&crowd, "20", "100"], &["project_members_list"], 1),
        (&ProjectId::statements().from_end, &[&crowd, "20", "100"], &["project_members_list"], 1),
        (
            &ProjectId::statements().filtered,
            &[&few, "", "%m6%", "20", "0"],
            &["project_members_|PRIMARY KEY"],
            1,
        ),
        (
            &ProjectId::statements().filtered_count,
            &[&few, "viewer", "%m6%"],
            &["project_members_|PRIMARY KEY"],
            0,
        ),
        // Statements that end a membership in the organization.
        (members::LEAVE_PROJECTS, &[&mine, &me], &["project_members_user_id"], 0),
        // Projects that a member leaves, and users who can be added to a project.
        (members::PROJECTS, &[&mine, &me, "101"], &["project_members_user_id"], 1),
        (members::CANDIDATES, &[&mine, &few, "%m6%", "20"], &["organization_members_"], 1),
        // Reports read the days of the range, which are then grouped.
        (
            &by_day,
            &[&mine, "1", "3", "100"],
            &["usage_daily_sums_organization_day|usage_daily_sums_pkey|PRIMARY KEY"],
            1,
        ),
        (
            &by_everything,
            &[&mine, "1", "3", "100"],
            &["usage_daily_organization_day|usage_daily_pkey|PRIMARY KEY"],
            1,
        ),
        // The name of each caller and project is read once.
        (
            &named,
            &[&mine, "1", "3", "100"],
            &["usage_daily_organization_day|usage_daily_pkey|PRIMARY KEY"],
            3,
        ),
        // Reports of the projects on a list page.
        (&listed[0], &[&other, "1", "3", "100", &crowd, &few], &[sums_by_project], 1),
        (&listed[1], &[&other, "1", "3", "100", &crowd, &few], &[by_project], 1),
        (reports::PROJECTS, &[&other, "17"], &["usage_daily_project_month|usage_daily_pkey|PRIMARY KEY"], 0),
        (
            &of_project,
            &[&other, &crowd, "1", "3", "100"],
            &["usage_daily_sums_pkey|usage_daily_sums_organization_day|PRIMARY KEY"],
            2,
        ),
        (&by_month[0], &of_months, &["usage_daily_organization_day|usage_daily_pkey|PRIMARY KEY"], 3),
        (&by_month[1], &of_project_months, &["usage_daily_pkey|PRIMARY KEY"], 2),
        (
            &components[0],
            &[&mine, "1", "3", "100", "0"],
            &["usage_daily_parts_|PRIMARY KEY", "usage_daily_organization_|usage_daily_p|PRIMARY KEY"],
            4,
        ),
        (
            &components[1],
            &[&other, "1", "3", "100", "0", &crowd],
            &["usage_daily_parts_|PRIMARY KEY", "usage_daily_organization_|usage_daily_p|PRIMARY KEY"],
            4,
        ),
        (
            &reports::API_KEY,
            &["key_2", "0", "1", "3"],
            &["usage_daily_api_key_id_month|usage_daily_pkey|PRIMARY KEY"],
            1,
        ),
        // A month's invoice reads only its own rows, not all rows of the tenant.
        (months::BILLED, &[&other, "5"], &["usage_daily_organization_month"], 2),
    ];
    for (text, parameters, indexes, sorts) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        for index in indexes {
            assert!(index.split('|').any(|index| plan.contains(index)), "{index} {what}");
        }
        // These scans read rows that were already found.
        let scans = |line: &&str| line.contains("Seq Scan") || line.starts_with("SCAN ");
        let found = [
            "SCAN page",
            "SCAN p",
            "SCAN own",
            "SCAN others",
            "SCAN d",
            "SCAN i",
            "SCAN summed",
            "SCAN listed",
        ];
        // No key exists here, and PostgreSQL reads an empty table with a full scan.
        let empty = |line: &&str| line.contains("Seq Scan on") && line.contains("api_keys");
        let is_found = |line: &str| found.contains(&line.trim_end_matches(" LEFT-JOIN"));
        let scanned: Vec<_> =
            plan.lines().filter(scans).filter(|line| !is_found(line) && !empty(line)).collect();
        assert!(scanned.is_empty(), "{what}");
        let found = plan.matches("Sort Key").count() + plan.matches("TEMP B-TREE").count();
        assert!(found <= sorts, "{what}");
        assert!(!plan.contains("usage_events"), "{what}");
    }
}

#[on_each_database]
async fn pages_of_many_projects_need_few_statements(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let organization = world.organization(&ada, "Large").await;
    let mut tx = world.app.db.write().await.unwrap();
    fill(&mut tx, &organization, 1, 2_000).await;
    fill_projects(&mut tx, &organization, &ada.id.to_string(), 1, 1, 2_000).await;
    sql("INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)
             VALUES ($1, $2, 'member', 1, 1)")
    .bind(organization.as_str())
    .bind(bob.id)
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let projects = format!("/v1/organizations/{organization}/projects");
    let members = format!("{projects}/proj_{:026}/members", 1);
    let names = async |path: &str, list: &str, name: &str, token: &str| {
        let before = world.app.db.statement_count();
        let data = world.get(path).bearer(token).data().await;
        let rows = data[list].as_array().unwrap().clone();
        let names: Vec<_> = rows.iter().map(|row| row[name].as_str().unwrap().to_owned()).collect();
        (names.join(" "), data["total"].as_i64().unwrap(), world.app.db.statement_count() - before)
    };
    // The statements read the role with the stored count, and the page. The session is cached.
    for (query, due) in [("", "p2000 p1999 p1998"), ("&page=667", "p2 p1"), ("&page=2", "p1997 p1996 p1995")]
    {
        let path = format!("{projects}?page_size=3{query}");
        let found = names(&path, "projects", "name", &ada.access_token).await;
        assert_eq!(found, (due.into(), 2_000, 3), "{query}");
    }
    // The member's projects are counted, and only the public ones are read.
    let path = format!("{projects}?page_size=3");
    world.get("/v1/organizations").bearer(&bob.access_token).data().await;
    let found = names(&path, "projects", "name", &bob.access_token).await;
    assert_eq!(found, ("p2000 p1990 p1980".into(), 200, 3));
    // The statements read both roles, the count, and the page.
    for (query, due) in [("", "m2000 m1999 m1998"), ("&page=667", "m2 m1")] {
        let path = format!("{members}?page_size=3{query}");
        let found = names(&path, "members", "username", &ada.access_token).await;
        assert_eq!(found, (due.into(), 2_000, 3), "{query}");
    }
}

/// The gate's read of an organization, a user or a key is also the answer. A project, and the usage of a
/// project or a key, are read after it.
#[on_each_database]
async fn single_objects_need_few_statements(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (organization, project) = (place.organization_path(), place.project_path());
    let made = world.post(&format!("{project}/api-keys"), &json!({"name": "one"}));
    let made = made.bearer(&ada.access_token).data().await;
    let key = format!("{project}/api-keys/{}", made["id"].as_str().unwrap());
    let reads = [("/v1/auth/me", 1), (&organization, 1), (&project, 3), (&key, 2)];
    for (path, statements) in reads {
        // The session is already cached.
        let before = world.app.db.statement_count();
        world.get(path).bearer(&ada.access_token).data().await;
        assert_eq!(world.app.db.statement_count() - before, statements, "{path}");
    }
    // The statements are the gate's read, a lock if needed, the repeated check, the change, and its audit
    // entry.
    let changes = [(&organization, 5), (&project, 5), (&key, 7)];
    for (path, statements) in changes {
        let before = world.app.db.statement_count();
        let change = world.call(Method::PUT, path).json(&json!({"description": "another"}));
        change.bearer(&ada.access_token).data().await;
        let statements = statements - u64::from(!world.app.db.is_postgres());
        assert_eq!(world.app.db.statement_count() - before, statements, "{path}");
    }
}
