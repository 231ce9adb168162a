//! Removal of old data: unused accounts, old audit entries, old e-mail files, expired counters.

use serde_json::json;
use tollkeeper::accounts::store::users::unused;
use tollkeeper::clock::{DAY_MS, MINUTE_MS, Time};
use tollkeeper::db::sql;
use tollkeeper::jobs::cleanup::{Progress, Removed, Step, step_with_size};
use tollkeeper::trail::{self, Action, Event};

use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

const MONTH_MS: i64 = 30 * DAY_MS;

/// Runs the daily walk to its end.
async fn walk(world: &World, size: i64) -> Removed {
    let mut walk = Progress::default();
    loop {
        let Step { removed, has_more } = step_with_size(&world.app, &mut walk, size).await.unwrap();
        if !has_more {
            return removed;
        }
    }
}

/// Registers an account now; returns its id.
async fn register_account(world: &World, name: &str) -> String {
    let user = world.user(name).await;
    run(world, &format!("UPDATE users SET email_verified_at = NULL WHERE id = '{}'", user.id)).await;
    run(world, &format!("DELETE FROM sessions WHERE user_id = '{}'", user.id)).await;
    user.id.to_string()
}

async fn run(world: &World, text: &str) {
    let mut tx = world.app.db.write().await.unwrap();
    sql(text.to_owned()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

async fn names(world: &World) -> Vec<String> {
    let mut tx = world.app.db.read().await.unwrap();
    let rows: Vec<(String,)> =
        sql("SELECT username FROM users ORDER BY username").all(&mut tx).await.unwrap();
    rows.into_iter().map(|(name,)| name).collect()
}

/// Writes an audit entry with this time.
async fn write_entry(world: &World, at: Time) {
    let event = Event { action: Action::SessionStarted, target: "somebody".into(), organization_id: None };
    let mut tx = world.app.db.write().await.unwrap();
    let trail = tollkeeper::trail::Trail::system();
    trail::record(&mut tx, &trail, &event, at, &world.app.random).await.unwrap();
    tx.commit().await.unwrap();
}

async fn entries(world: &World) -> Vec<Time> {
    let mut tx = world.app.db.read().await.unwrap();
    let rows: Vec<(Time,)> =
        sql("SELECT happened_at FROM audit_log ORDER BY happened_at").all(&mut tx).await.unwrap();
    rows.into_iter().map(|(time,)| time).collect()
}

#[on_each_database]
async fn unused_accounts_are_removed_after_a_month(world: World) {
    let owner = world.user("owner").await;
    let place = world.place(&owner, "Acme").await;
    for n in 0..7 {
        register_account(&world, &format!("unused{n}")).await;
    }
    for (name, statement) in [
        ("verified", "UPDATE users SET email_verified_at = 1 WHERE id = 'WHO'"),
        ("logged-in", "UPDATE users SET last_login_at = 1 WHERE id = 'WHO'"),
        (
            "member",
            "INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)
                 VALUES ('ORG', 'WHO', 'member', 0, 0)",
        ),
        (
            "project-member",
            "INSERT INTO project_members (project_id, user_id, role, added_at, updated_at)
                 VALUES ('PROJECT', 'WHO', 'viewer', 0, 0)",
        ),
        (
            "founder",
            "INSERT INTO organizations (id, name, name_folded, default_role, allow_public_projects, plan, created_by,
                     created_at, updated_at) VALUES ('org_of', 'a', 'a', 'member', 0, 'pay_as_you_go', 'WHO', 0, 0)",
        ),
        (
            "planner",
            "INSERT INTO projects (id, organization_id, name, name_folded, visibility, created_by, created_at, updated_at)
                 VALUES ('proj_of', 'ORG', 'b', 'b', 'private', 'WHO', 0, 0)",
        ),
        (
            "key-maker",
            "INSERT INTO api_keys (id, organization_id, project_id, name, name_folded, permissions, created_by, created_at,
                     updated_at) VALUES ('key_of', 'ORG', 'PROJECT', 'c', 'c', 'chat', 'WHO', 0, 0)",
        ),
        (
            "host",
            "INSERT INTO invitations (id, organization_id, email, email_folded, role, invited_by, created_at, expires_at)
                 VALUES ('inv_1', 'ORG', 'x', 'x', 'member', 'WHO', 0, 0)",
        ),
        (
            "guest",
            "INSERT INTO invitations (id, organization_id, email, email_folded, role, invited_by, created_at, expires_at,
                     ended_at, accepted_by) VALUES ('inv_2', 'ORG', 'y', 'y', 'member', 'OWNER', 0, 0, 0, 'WHO')",
        ),
    ] {
        let id = register_account(&world, name).await;
        let statement = statement
            .replace("WHO", &id)
            .replace("ORG", &place.organization)
            .replace("PROJECT", &place.project)
            .replace("OWNER", &owner.id.to_string());
        run(&world, &statement).await;
    }
    let start = world.clock.now();
    world.clock.advance_ms(1);
    register_account(&world, "younger").await;
    let all = names(&world).await.len();
    world.clock.advance_ms(MONTH_MS - 1);
    write_entry(&world, world.clock.now()).await;
    assert_eq!(walk(&world, 3).await.accounts, 0, "not before");
    // The clock is ahead, but nothing has been written with its time yet.
    world.clock.advance_ms(400 * DAY_MS);
    assert_eq!(walk(&world, 3).await, Removed::default());
    write_entry(&world, start.plus_ms(MONTH_MS + 1)).await;
    world.clock.advance_ms(-400 * DAY_MS + 1);
    assert_eq!(walk(&world, 3).await, Removed { accounts: 7, ..Removed::default() });
    let left = names(&world).await;
    assert_eq!(left.len(), all - 7, "{left:?}");
    assert!(left.iter().all(|name| !name.starts_with("unused")), "{left:?}");
    assert!(left.contains(&"younger".to_owned()));
    // The username and the address are available again.
    world.catch_up().await;
    let body = json!({"email": "unused0@example.com", "password": PASSWORD, "username": "unused0"});
    world.post("/v1/auth/register", &body).data().await;
}

#[on_each_database]
fn accounts_are_removed_in_daily_slices_unless_configured_otherwise(database: Database) {
    database.run(&[], async |world| {
        for n in 0..5 {
            register_account(&world, &format!("unused{n}")).await;
        }
        world.clock.advance_ms(MONTH_MS + 1);
        write_entry(&world, world.clock.now()).await;
        let mut walk = Progress::default();
        let mut steps = Vec::new();
        loop {
            let turn = step_with_size(&world.app, &mut walk, 2).await.unwrap();
            steps.push(turn.removed.accounts);
            if !turn.has_more {
                break;
            }
        }
        assert_eq!(steps[..3], [2, 4, 5]);
        let statements = world.app.db.statement_count();
        assert!(!step_with_size(&world.app, &mut walk, 2).await.unwrap().has_more);
        assert_eq!(world.app.db.statement_count(), statements, "enough for today");
    });
    let never = [("TOLLKEEPER_RETENTION__UNVERIFIED_ACCOUNTS_DAYS", "0")];
    database.run(&never, async |world| {
        register_account(&world, "unused").await;
        world.clock.advance_ms(900 * DAY_MS);
        write_entry(&world, world.clock.now()).await;
        assert_eq!(walk(&world, 2).await.accounts, 0);
    });
}

/// A new table that refers to accounts must also be checked, because its rows would otherwise block every
/// slice.
#[on_each_database]
async fn every_table_that_refers_to_accounts_is_checked(world: World) {
    let text = if world.app.db.is_postgres() {
        "SELECT CAST(t.relname || '.' || a.attname AS TEXT) FROM pg_constraint c
                 JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class r ON r.oid = c.confrelid
                 JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'public'
                 JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = c.conkey[1]
             WHERE c.contype = 'f' AND r.relname = 'users' AND c.confdeltype <> 'c'"
    } else {
        "SELECT t.name || '.' || f.\"from\" FROM sqlite_schema t, pragma_foreign_key_list(t.name) f
             WHERE t.type = 'table' AND f.\"table\" = 'users' AND f.on_delete <> 'CASCADE'"
    };
    let mut tx = world.app.db.read().await.unwrap();
    let columns: Vec<(String,)> = sql(text).heavy().all(&mut tx).await.unwrap();
    assert!(columns.len() >= 5, "{columns:?}");
    for (column,) in columns {
        let (table, column) = column.split_once('.').unwrap();
        let asked = unused::UNUSED.lines().any(|line| {
            line.contains(&format!("FROM {table} ")) && line.contains(&format!(".{column} = users.id"))
        });
        assert!(asked, "{table}.{column}");
    }
}

#[on_each_database(&[("TOLLKEEPER_RETENTION__AUDIT_LOG_DAYS", "100")])]
async fn old_audit_entries_are_removed_and_recent_ones_protected(world: World) {
    let start = entries(&world).await[0];
    for day in 1..=9 {
        write_entry(&world, start.plus_ms(day * DAY_MS)).await;
    }
    world.clock.advance_ms(104 * DAY_MS);
    assert_eq!(walk(&world, 2).await, Removed::default(), "nothing happened since");
    write_entry(&world, world.clock.now()).await;
    assert_eq!(walk(&world, 2).await, Removed { entries: 4, ..Removed::default() });
    assert_eq!(entries(&world).await[0], start.plus_ms(4 * DAY_MS));
    assert_eq!(walk(&world, 2).await, Removed::default());

    // Entries of the 90 days before the newest entry can't be deleted, regardless of the statement.
    let newest = world.clock.now();
    let young = newest.plus_ms(-90 * DAY_MS + 1);
    write_entry(&world, young).await;
    let mut tx = world.app.db.write().await.unwrap();
    let refused = sql("DELETE FROM audit_log WHERE happened_at = $1").bind(young).execute(&mut tx).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("append-only for 90 days"), "{refused}");
    drop(tx);
    let mut tx = world.app.db.write().await.unwrap();
    let refused = sql("UPDATE audit_log SET target = ''").execute(&mut tx).await.unwrap_err().to_string();
    assert!(refused.contains("append-only"), "{refused}");
    drop(tx);
    let mut tx = world.app.db.write().await.unwrap();
    assert_eq!(trail::remove_before(&mut tx, young, 100).await.unwrap(), 6);
    tx.commit().await.unwrap();
}

#[on_each_database(&[("TOLLKEEPER_RETENTION__AUDIT_LOG_DAYS", "0")])]
async fn audit_trail_is_kept_forever_when_so_configured(world: World) {
    world.clock.advance_ms(3_000 * DAY_MS);
    write_entry(&world, world.clock.now()).await;
    assert_eq!(walk(&world, 2).await, Removed::default());
    assert_eq!(entries(&world).await.len(), 2);
}

#[on_each_database]
async fn old_mail_files_are_removed_and_other_files_stay(world: World) {
    let folder = world.data_dir.join("mail");
    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(walk(&world, 2).await, Removed::default(), "the folder doesn't exist yet");
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
    world.post("/v1/auth/register", &body).data().await;
    world.mailed_token("ada@example.com").await;
    let old = files();
    assert_eq!(old.len(), 1);
    world.clock.advance_ms(MINUTE_MS);
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    world.mailed_token("ada@example.com").await;
    let both = files();
    let id = "0".repeat(32);
    let others = [
        "notes.txt",
        "19990101T000000000Z-x.eml",
        &format!("1999-{id}.eml"),
        &format!("19990101T000000000Z-{id}.eml.bak"),
    ];
    for name in others {
        std::fs::write(folder.join(name), "mine").unwrap();
    }
    world.clock.advance_ms(MONTH_MS - MINUTE_MS);
    write_entry(&world, world.clock.now()).await;
    assert_eq!(walk(&world, 2).await.files, 0);
    world.clock.advance_ms(1);
    write_entry(&world, world.clock.now()).await;
    assert_eq!(walk(&world, 2).await.files, 1);
    let left = files();
    assert_eq!(left.len(), 5, "{left:?}");
    assert!(!left.contains(&old[0]) && left.contains(&both[1]), "{left:?}");
}
