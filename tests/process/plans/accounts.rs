//! Sign-ins with providers, second factors, passkeys and the operators' pages. Their statements use an index,
//! regardless of the number of accounts.

use tollkeeper::accounts::store::users::administration;
use tollkeeper::accounts::store::{connections, passkeys, second_factors, sessions};
use tollkeeper::billing::store::{invoices, wallets};
use tollkeeper::db::sql;
use tollkeeper::tenants::store::{members, organization_members};

use super::{BYTES, plan};
use support::on_each_database;
use support::world::World;

/// The number of accounts. Each has a password, an app, a passkey, ten recovery codes, connections and
/// sessions.
const PEOPLE: i64 = 3_000;

/// Fills the tables.
async fn fill(world: &World) {
    let series = |most: i64| {
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {most})")
    };
    // An expression for 32 different bytes.
    let bytes = match world.app.db.is_postgres() {
        true => "decode(substr('0000000000000000000000000000000000000000000000000000000000000000' || CAST(i AS TEXT),
                        length(CAST(i AS TEXT)) + 1), 'hex')",
        false => "CAST(substr('00000000000000000000000000000000' || CAST(i AS TEXT), length(CAST(i AS TEXT)) + 1) AS BLOB)",
    };
    let (people, codes) = (series(PEOPLE), series(10 * PEOPLE));
    let (name, user) = ("'x' || CAST(i AS TEXT)", "'user_x' || CAST(i AS TEXT)");
    let owner = format!("'user_x' || CAST(1 + i % {PEOPLE} AS TEXT)");
    let organization = "'org_x' || CAST(1 + i % 50 AS TEXT)";
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!(
            "{people} INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at,
                 operator_since)
             SELECT {user}, {name}, {name}, {name}, {name}, 'x', 0, CASE WHEN i % 1000 = 0 THEN 1 END FROM n"
        ),
        format!(
            "{people} INSERT INTO sessions (id, user_id, created_at, expires_at, ended_at, kind, remember_me, connection_id)
             SELECT 'sess_' || {name}, {owner}, i, 9000, CASE WHEN i % 3 = 0 THEN 1 END, 'browser', 0,
                    CASE WHEN i % 2 = 0 THEN 'con_' || {name} END FROM n"
        ),
        format!(
            "{people} INSERT INTO connections (id, user_id, provider_id, issuer, subject, connected_at)
             SELECT 'con_' || {name}, {owner}, 'acme', 'https://id.test', {name}, i FROM n"
        ),
        format!("{people} INSERT INTO used_sign_on_values (value_hash, expires_at) SELECT {bytes}, i FROM n"),
        format!(
            "{people} INSERT INTO passkey_handles (user_id, handle, asked_after_password) SELECT {user}, {bytes}, 1 FROM n"
        ),
        format!(
            "{people} INSERT INTO passkeys (id, user_id, credential_id, credential, name, sign_count, is_synced, created_at)
             SELECT 'passkey_' || {name}, {owner}, {bytes}, '{{}}', 'x', 0, 0, i FROM n"
        ),
        format!("{people} INSERT INTO used_ceremonies (ceremony_hash, expires_at) SELECT {bytes}, i FROM n"),
        format!("{people} INSERT INTO totp (user_id, sealed_seed, confirmed_at, last_step) SELECT {user}, {bytes}, 0, 0 FROM n"),
        format!("{people} INSERT INTO totp_enrolments (user_id, sealed_seed, expires_at) SELECT {user}, {bytes}, i FROM n"),
        format!("{codes} INSERT INTO recovery_codes (user_id, code_hash, created_at) SELECT {owner}, {bytes}, 0 FROM n"),
        format!(
            "{people} INSERT INTO organizations (id, name, name_folded, default_role, allow_public_projects, plan,
                 created_by, created_at, updated_at)
             SELECT 'org_' || {name}, {name}, {name}, 'member', 0, 'p', {user}, 0, 0 FROM n"
        ),
        format!(
            "{people} INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)
             SELECT {organization}, {user}, CASE WHEN i % 20 = 0 THEN 'owner' ELSE 'member' END, i, i FROM n"
        ),
        format!(
            "{people} INSERT INTO wallets (organization_id, currency, credit_limit_nano, posted_nano, reserved_nano,
                 open_month, created_at, updated_at)
             SELECT 'org_' || {name}, 'USD', 0, 0, 0, 600, 0, 0 FROM n"
        ),
        format!(
            "{codes} INSERT INTO invoices (id, number, organization_id, organization_name, month, currency, amount_nano,
                 due_nano, status, finalized_at)
             SELECT 'in_' || {name}, i, {organization}, 'x', i, 'USD', 1, 0, CASE WHEN i % 3000 = 0 THEN 'open' ELSE 'paid' END,
                    0 FROM n"
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[on_each_database]
async fn sign_ons_factors_and_pages_of_operators_use_an_index(world: World) {
    fill(&world).await;
    // Each case has a statement, its parameters, the expected index, and the number of allowed sorts. Sorts
    // may include only one user's rows.
    let cases: [(&str, &[&str], &str, usize); 28] = [
        (connections::BY_SUBJECT, &["https://id.test", "x7"], "connections_issuer_subject", 0),
        (connections::OF_USER, &["user_x7"], "connections_user_id", 1),
        (connections::HAS_ISSUER, &["user_x7", "https://id.test"], "connections_user_id", 0),
        (connections::REMOVE_EXPIRED_VALUES, &["7"], "used_sign_on_values_expires_at", 0),
        (sessions::END_OF_CONNECTION, &["con_x8", "sess_x7", "9"], "sessions_connection_id", 0),
        (administration::COUNT_SESSIONS, &["user_x7", "9"], "sessions_live", 0),
        (passkeys::LIST, &["user_x7"], "passkeys_user_id", 1),
        (passkeys::CREDENTIAL_IDS, &["user_x7"], "passkeys_user_id", 1),
        (passkeys::COUNT, &["user_x7"], "passkeys_user_id", 0),
        (passkeys::COUNT, &["user_x7"], "passkey_handles_pkey|passkey_handles_1", 0),
        (passkeys::BY_CREDENTIAL_ID, &[BYTES], "passkeys_credential_id", 0),
        (passkeys::BY_CREDENTIAL_ID, &[BYTES], "passkey_handles_pkey|passkey_handles_1", 0),
        (passkeys::REMOVE_ALL, &["user_x7"], "passkeys_user_id", 0),
        (passkeys::REMOVE_EXPIRED_CEREMONIES, &["7"], "used_ceremonies_expires_at", 0),
        (second_factors::COUNT_RECOVERY_CODES, &["user_x7"], "recovery_codes_pkey|recovery_codes_1", 0),
        (
            second_factors::USE_RECOVERY_CODE,
            &["user_x7", BYTES, "9"],
            "recovery_codes_pkey|recovery_codes_1",
            0,
        ),
        (second_factors::REMOVE_EXPIRED_ENROLMENTS, &["7"], "totp_enrolments_expires_at", 0),
        (members::SIGN_ON_STANDING, &["org_x8", "user_x7", "con_x7"], "PRIMARY KEY|organization_members_", 0),
        (
            members::SIGN_ON_STANDING,
            &["org_x8", "user_x7", "con_x7"],
            "connections_pkey|connections_1|connections_user_id",
            0,
        ),
        (administration::HAS_OPERATOR, &[], "users_operator_since", 0),
        (administration::OPERATOR_ADDRESSES, &[], "users_operator_since", 0),
        (administration::IS_ANY_DISABLED, &["user_x7", "user_x8"], "users_pkey|users_1", 0),
        (&administration::LIST, &["%", "0", "0", "20", "100"], "users_pkey|users_1", 0),
        (&administration::AFTER, &["%", "0", "0", "user_x1", "20"], "users_pkey|users_1", 0),
        (organization_members::MEMBERSHIPS, &["user_x7", "200"], "organization_members_user_id", 1),
        (organization_members::OWNERS, &["org_x8"], "organization_members_owners", 1),
        (&invoices::OPEN_PAGE, &["20", "0"], "invoices_open", 0),
        (invoices::COUNT_OPEN, &[], "invoices_open", 0),
    ];
    for (text, parameters, index, sorts) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        // SQLite also reports a scan if it reads a list in the order of its index.
        let scans =
            |line: &&str| line.contains("Seq Scan") || (line.starts_with("SCAN ") && !line.contains("USING"));
        assert_eq!(plan.lines().filter(scans).count(), 0, "{what}");
        let found = plan.matches("Sort Key").count() + plan.matches("TEMP B-TREE").count();
        assert!(found <= sorts, "{what}");
    }
    // Pages in order of creation are read from the end of the index, without sorting.
    let page = plan(&world, &wallets::PAGE, &["%", "20", "0"]).await;
    let found = page.matches("Sort Key").count() + page.matches("TEMP B-TREE").count();
    assert!(page.contains("wallets_pkey") || page.contains("wallets_1"), "on {}: {page}", world.backend);
    assert_eq!(found, 0, "on {}: {page}", world.backend);
}
