//! Statements of a login and of the daily cleanup. They use an index, regardless of the number of rows.

use support::on_each_database;
use support::world::World;
use tollkeeper::accounts::store::users::unused;
use tollkeeper::accounts::store::{email_changes, passkeys, second_factors, sessions};
use tollkeeper::db::sql;
use tollkeeper::idempotency;
use tollkeeper::trail;

use super::plan;

/// The number of rows of each kind.
const ROWS: i64 = 3_000;

#[on_each_database]
async fn old_rows_are_found_by_their_index(world: World) {
    let ada = world.user("ada").await;
    let me = ada.id.to_string();
    let series = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    let bytes = if world.app.db.is_postgres() { "BYTEA" } else { "BLOB" };
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        // A user has logged in and out repeatedly.
        format!(
            "{series} INSERT INTO sessions (id, user_id, remember_me, created_at, expires_at, ended_at)
                 SELECT 's' || CAST(i AS TEXT), '{me}', 0, i, 9, CASE WHEN i % 100 = 0 THEN NULL ELSE i END FROM n"
        ),
        // Other users are logged in.
        format!(
            "{series} INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at,
                     email_verified_at)
                 SELECT 'v' || CAST(i AS TEXT), 'v' || CAST(i AS TEXT), 'v' || CAST(i AS TEXT), 'v' || CAST(i AS TEXT),
                        'v' || CAST(i AS TEXT), 'x', i, i FROM n"
        ),
        format!(
            "{series} INSERT INTO sessions (id, user_id, remember_me, created_at, expires_at)
                 SELECT 't' || CAST(i AS TEXT), 'v' || CAST(i AS TEXT), 0, i, 9 FROM n"
        ),
        // Each of these users has an address change that isn't confirmed yet.
        format!(
            "{series} INSERT INTO email_changes (user_id, session_id, email, email_folded, created_at, expires_at)
                 SELECT 'v' || CAST(i AS TEXT), 't' || CAST(i AS TEXT), 'x', 'x', i, i FROM n"
        ),
        // Each of them also has an unconfirmed authenticator app.
        format!(
            "{series} INSERT INTO totp_enrolments (user_id, sealed_seed, expires_at)
                 SELECT 'v' || CAST(i AS TEXT), CAST('x' AS {bytes}), i FROM n"
        ),
        // Passkey ceremonies were used.
        format!(
            "{series} INSERT INTO used_ceremonies (ceremony_hash, expires_at)
                 SELECT CAST('h' || CAST(i AS TEXT) AS {bytes}), i FROM n"
        ),
        // Of the accounts, 1% were never verified.
        format!(
            "{series} INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at,
                     email_verified_at)
                 SELECT 'u' || CAST(i AS TEXT), 'u' || CAST(i AS TEXT), 'u' || CAST(i AS TEXT), 'u' || CAST(i AS TEXT),
                        'u' || CAST(i AS TEXT), 'x', i, CASE WHEN i % 100 = 0 THEN NULL ELSE i END FROM n"
        ),
        format!(
            "{series} INSERT INTO audit_log (id, happened_at, actor, action, target)
                 SELECT 'a' || CAST(i AS TEXT), i, 'x', 'user.password_changed', 'u' || CAST(i AS TEXT) FROM n"
        ),
        format!(
            "{series} INSERT INTO idempotency_keys (id, content_hash, holder, leased_until, created_at)
                 SELECT CAST('k' || CAST(i AS TEXT) AS {bytes}), CAST('x' AS {bytes}), 'x', 0, i FROM n"
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let cases: [(&str, &[&str], &str, bool); 13] = [
        // Each case has a statement, its parameters, the expected indexes, any of which may be used, and
        // whether it may sort.
        (sessions::END_OLDEST, &[&me, "s1", "1", "50", "1000"], "sessions_live", true),
        (sessions::LIST, &[&me, "1", "0", "20", "0"], "sessions_live", true),
        (sessions::COUNT, &["v7", "1", "0"], "sessions_live|sessions_user_id", false),
        (email_changes::REMOVE_EXPIRED, &["9"], "email_changes_expires_at", false),
        (second_factors::REMOVE_EXPIRED_ENROLMENTS, &["9"], "totp_enrolments_expires_at", false),
        (passkeys::REMOVE_EXPIRED_CEREMONIES, &["9"], "used_ceremonies_expires_at", false),
        (&unused::SLICE, &["9", "0", "u", "500"], "users_unverified", false),
        (&unused::REMOVE, &["9", "0", "u", "8", "u"], "users_unverified", false),
        (trail::REMOVE_BEFORE, &["9", "500"], "audit_log_happened_at", false),
        (trail::OLDEST, &[], "audit_log_happened_at", false),
        (idempotency::store::OLDEST, &[], "idempotency_keys_created_at", false),
        (idempotency::store::REMOVE, &["9", "500"], "idempotency_keys_created_at", false),
        (trail::TIMES, &["u7", "a1", "user.password_changed", "1", "9", "5"], "audit_log_target_id", false),
    ];
    for (text, parameters, index, sorts) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        let sorted = plan.contains("Sort Key") || plan.contains("TEMP B-TREE");
        assert!(sorts || !sorted, "{what}");
        let scans = |line: &&str| line.contains("Seq Scan on users") || line.contains("SCAN users");
        assert!(!plan.lines().any(|line| scans(&line) && !line.contains("INDEX")), "{what}");
    }
}
