//! What the databases do for a list: they go by an index of the tenant, however large the installation is.

use tollkeeper::db::{Error, FromRow, Row, Tx, sql};
use tollkeeper::store::{invitations, organization_members as members, organizations};

use crate::support::world::{World, on_each_database};

/// People in a large organization: its list is never sorted as a whole.
const STRANGERS: i64 = 6_000;
/// People in a small one beside it: its search never looks at the others.
const MEMBERS: i64 = 20;

/// One step of a plan, in the database's own words.
struct Step(String);

impl FromRow for Step {
    fn from_row(row: &Row) -> Result<Self, Error> {
        row.get("detail").or_else(|_| row.get("QUERY PLAN")).map(Self)
    }
}

async fn fill(tx: &mut Tx, organization: &str, from: i64, to: i64) {
    // An id is a prefix and 26 digits.
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

/// The plan of a statement with these parameters, a step a line.
async fn plan(world: &World, text: &str, parameters: &[&str]) -> String {
    let explain = if world.app.db.is_postgres() { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
    let mut statement = sql(format!("{explain} {text}"));
    for parameter in parameters {
        statement = match parameter.parse::<i64>() {
            Ok(number) => statement.bind(number),
            Err(_) => statement.bind(*parameter),
        };
    }
    let steps: Vec<Step> = statement.all(&mut world.app.db.read().await.unwrap()).await.unwrap();
    steps.into_iter().map(|Step(step)| step).collect::<Vec<_>>().join("\n")
}

#[test]
fn lists_go_by_the_tenant_s_index() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let (mine, other) = (world.organization(&ada, "Mine").await, world.organization(&ada, "Other").await);
        for (organization, from, to) in [(&other, 1, STRANGERS), (&mine, STRANGERS + 1, STRANGERS + MEMBERS)]
        {
            let mut tx = world.app.db.write().await.unwrap();
            fill(&mut tx, organization, from, to).await;
            tx.commit().await.unwrap();
        }
        let mut tx = world.app.db.write().await.unwrap();
        sql("ANALYZE").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();

        let (by_tenant, by_person) = ("organization_members_list", "organization_members_user_id");
        let me = ada.id.to_string();
        let cases: [(&str, &[&str], &str, usize); 7] = [
            // Statement, parameters, the index that it goes by, and how often it may sort: the page itself, what was
            // found, or what one person belongs to.
            (members::FROM_START, &[&other, "20", "100"], by_tenant, 1),
            (members::FROM_END, &[&other, "20", "100"], by_tenant, 1),
            (members::FILTERED, &[&mine, "", "%m6%", "20", "0"], "organization_members_", 1),
            (members::COUNTED, &[&mine, "member", "%m6%"], "organization_members_|PRIMARY KEY", 0),
            (organizations::LIST, &[&me, "", "%", "", "20", "0"], by_person, 1),
            (organizations::COUNT, &[&me, "", "%", ""], by_person, 0),
            (invitations::OPEN_FOR, &["x7", "0"], "invitations_email_folded", 1),
        ];
        for (text, parameters, index, sorts) in cases {
            let plan = plan(&world, text, parameters).await;
            let what = format!("on {}: {text}\n{plan}", world.backend);
            assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
            // `page` is the page's own rows.
            let scans = |line: &&str| line.contains("Seq Scan") || line.starts_with("SCAN ");
            let scanned: Vec<_> = plan.lines().filter(scans).filter(|line| *line != "SCAN page").collect();
            assert!(scanned.is_empty(), "{what}");
            let found = plan.matches("Sort Key").count() + plan.matches("TEMP B-TREE").count();
            assert!(found <= sorts, "{what}");
        }
    });
}

#[test]
fn the_first_and_the_last_page_of_a_large_organization() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
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
        // Session, role, the count that stands in the organization's row, the page.
        assert_eq!(names("?page_size=3").await, ("ada m2000 m1999".into(), 2_001, 4));
        assert_eq!(names("?page_size=3&page=2").await, ("m1998 m1997 m1996".into(), 2_001, 4));
        assert_eq!(names("?page_size=3&page=667").await, ("m3 m2 m1".into(), 2_001, 4));
        assert_eq!(names("?page_size=3&page=666").await, ("m6 m5 m4".into(), 2_001, 4));
        assert_eq!(names("?page_size=3&page=668").await, (String::new(), 2_001, 3));
        assert_eq!(names("?search=m1999").await, ("m1999".into(), 1, 4));
    });
}
