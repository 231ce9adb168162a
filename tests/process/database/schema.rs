//! The schema and its migrations. The schema must be the same on both databases.

use std::collections::BTreeSet;

use tollkeeper::db::{Db, MigrateError, Settings, sql};

use super::{Folder, with_db, with_empty, with_schema};
use support::postgres::Cluster;
use support::{Database, on_each_database, on_postgres};

#[on_each_database]
fn concurrent_migrations_succeed(database: Database) {
    with_empty(database, async |settings| {
        let tasks = (0..8).map(|_| {
            // Each task has its own handle, like another process.
            let db = Db::open(&settings).unwrap();
            tokio::spawn(async move { db.migrate().await })
        });
        let mut from_nothing = 0;
        for task in tasks.collect::<Vec<_>>() {
            let migrated = task.await.unwrap().unwrap();
            assert!(migrated.to >= 1);
            if migrated.from == 0 {
                from_nothing += 1;
                assert_eq!(migrated.applied[0], "V1__initial_schema");
            } else {
                assert_eq!((migrated.from, migrated.applied.len()), (migrated.to, 0));
            }
        }
        assert_eq!(from_nothing, 1);
        let db = Db::open(&settings).unwrap();
        assert!(schema(&db).await.contains("users.email_folded text not null"));
    });
}

#[on_each_database]
fn newer_schema_is_left_alone(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        sql("INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             VALUES (99, 'from_the_future', '2030-01-01T00:00:00Z', '1')")
        .execute(&mut tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        let before = schema(&db).await;
        let refused = db.migrate().await.unwrap_err();
        assert!(matches!(refused, MigrateError::Newer { found: 99, known: 1.. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("schema 99") && text.contains("nothing was changed"), "{text}");
        assert_eq!(schema(&db).await, before);
    });
}

#[on_each_database]
fn changed_migration_is_refused(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        sql("UPDATE refinery_schema_history SET checksum = '1'").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let refused = db.migrate().await.unwrap_err();
        assert!(matches!(refused, MigrateError::Other(_)), "{refused:?}");
    });
}

/// Builds before the first release recorded step 1 under another name, which is part of its checksum.
#[on_each_database]
fn former_name_of_the_first_step_is_replaced(database: Database) {
    with_db(database, async |db| {
        const FIRST: &str = "SELECT name, checksum FROM refinery_schema_history WHERE version = 1";
        let current: (String, String) = sql(FIRST).one(&mut db.read().await.unwrap()).await.unwrap();
        let former = if db.is_postgres() { FORMER_POSTGRES } else { FORMER_SQLITE };
        for (checksum, is_adopted) in [(former, true), ("1", false)] {
            let mut tx = db.write().await.unwrap();
            let update =
                "UPDATE refinery_schema_history SET name = 'first_light', checksum = $1 WHERE version = 1";
            sql(update).bind(checksum.to_owned()).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            let migrated = db.migrate().await;
            assert_eq!(migrated.is_ok(), is_adopted, "{migrated:?}");
            let after: (String, String) = sql(FIRST).one(&mut db.read().await.unwrap()).await.unwrap();
            assert_eq!(after == current, is_adopted, "{after:?}");
        }
    });
}

/// The checksums of step 1 that commit 7368958 recorded.
const FORMER_SQLITE: &str = "6982400371564119087";
const FORMER_POSTGRES: &str = "17427646340283582940";

#[on_each_database]
fn reservations_of_earlier_servers_have_no_progress(database: Database) {
    with_schema(database, 21, async |db| {
        let insert = async |id: &'static str| {
            let mut tx = db.write().await.unwrap();
            sql("INSERT INTO reservations (id, organization_id, project_id, api_key_id, model, amount_nano,
                     created_at, expires_at, request_id) VALUES ($1, 'org_1', 'proj_1', 'key_1', 'm', 5, 1, 2, $2)")
            .bind(id)
            .bind(format!("call_of_{id}"))
            .execute(&mut tx)
            .await
            .unwrap();
            tx.commit().await.unwrap();
        };
        insert("res_1").await;
        let migrated = db.migrate().await.unwrap();
        assert_eq!((migrated.from, migrated.applied[0].as_str()), (21, "V22__call_progress"));
        // An earlier server that is still running writes this row.
        insert("res_2").await;
        let rows: Vec<(String, Option<i64>, i64, i64)> =
            sql("SELECT id, completion_tokens, estimated, closed FROM reservations ORDER BY id")
                .all(&mut db.read().await.unwrap())
                .await
                .unwrap();
        assert_eq!(rows, [("res_1".to_owned(), None, 0, 0), ("res_2".to_owned(), None, 0, 0)]);
    });
}

/// Adds to a daily row, as servers before step 20 do.
async fn add_to_day(db: &Db, key: [&str; 4], requests: i64, tokens: i64) {
    add_to_day_as(db, 0, key, requests, tokens).await;
}

/// Adds to a daily row, as servers do that increase `additions` by this number.
async fn add_to_day_as(
    db: &Db,
    additions: i64,
    [organization, project, caller, model]: [&str; 4],
    requests: i64,
    tokens: i64,
) {
    let (column, value, raise) = match additions {
        0 => (String::new(), String::new(), String::new()),
        _ => (
            ", additions".to_owned(),
            format!(", {additions}"),
            format!(", additions = usage_daily.additions + {additions}"),
        ),
    };
    let mut tx = db.write().await.unwrap();
    sql(format!(
        "INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
             requests, prompt_tokens, completion_tokens, amount_whole, amount_pico, posted_nano{column})
         VALUES ($1, $2, $3, $4, 0, 'chat', 20000, 660, $5, $6, $7, 0, $8, 0{value})
         ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month) DO UPDATE
         SET requests = usage_daily.requests + excluded.requests,
             prompt_tokens = usage_daily.prompt_tokens + excluded.prompt_tokens,
             completion_tokens = usage_daily.completion_tokens + excluded.completion_tokens,
             amount_pico = usage_daily.amount_pico + excluded.amount_pico{raise}
         RETURNING amount_pico"
    ))
    .bind(organization)
    .bind(project)
    .bind(caller)
    .bind(model)
    .bind(requests)
    .bind(tokens)
    .bind(tokens * 10)
    .bind(tokens * 100)
    .one::<(i64,)>(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

/// Returns the totals as `subject requests tokens`.
async fn totals(db: &Db) -> Vec<String> {
    let rows: Vec<(String, String, i64, i64)> = sql(
        "SELECT organization_id, subject_id, requests, tokens FROM usage_totals ORDER BY organization_id, subject_id",
    )
    .all(&mut db.read().await.unwrap())
    .await
    .unwrap();
    rows.iter().map(|(of, id, requests, tokens)| format!("{of} {id} {requests} {tokens}")).collect()
}

#[on_each_database]
fn totals_start_with_all_daily_rows_and_include_those_of_earlier_servers(database: Database) {
    with_schema(database, 19, async |db| {
        add_to_day(&db, ["org_1", "proj_1", "key_1", "m"], 2, 10).await;
        add_to_day(&db, ["org_1", "proj_1", "key_1", "n"], 1, 4).await;
        // This row has only a correction.
        add_to_day(&db, ["org_1", "proj_1", "key_2", "m"], 0, -3).await;
        add_to_day(&db, ["org_1", "proj_1", "user_1", "m"], 5, 1).await;
        add_to_day(&db, ["org_1", "proj_2", "user_1", "m"], 1, 1).await;
        add_to_day(&db, ["org_2", "proj_3", "key_3", "m"], 1, 100).await;
        let migrated = db.migrate().await.unwrap();
        assert_eq!((migrated.from, migrated.applied[0].as_str()), (19, "V20__usage_totals"));
        // The tokens are eleven times the prompt tokens.
        let due = [
            "org_1 key_1 3 154",
            "org_1 key_2 0 -33",
            "org_1 proj_1 8 132",
            "org_1 proj_2 1 11",
            "org_2 key_3 1 1100",
            "org_2 proj_3 1 1100",
        ];
        assert_eq!(totals(&db).await, due);

        // The usage is added to an existing row, to a new row of a key with usage, and to the first row of a
        // key.
        add_to_day(&db, ["org_1", "proj_1", "key_1", "m"], 1, 1).await;
        add_to_day(&db, ["org_1", "proj_1", "key_2", "n"], 1, 1).await;
        add_to_day(&db, ["org_1", "proj_2", "key_4", "m"], 1, 2).await;
        add_to_day(&db, ["org_1", "proj_2", "user_1", "m"], 0, -1).await;
        let due = [
            "org_1 key_1 4 165",
            "org_1 key_2 1 -22",
            "org_1 key_4 1 22",
            "org_1 proj_1 10 154",
            "org_1 proj_2 2 22",
            "org_2 key_3 1 1100",
            "org_2 proj_3 1 1100",
        ];
        assert_eq!(totals(&db).await, due);
    });
}

/// Returns the sums as `project grouped_by group requests prompt completion whole pico`.
async fn sums(db: &Db) -> Vec<String> {
    let numbers = ["requests", "prompt_tokens", "completion_tokens", "amount_whole", "amount_pico"];
    let numbers = numbers.map(|column| format!(" || ' ' || CAST({column} AS TEXT)")).concat();
    let rows: Vec<(String,)> = sql(format!(
        "SELECT project_id || ' ' || grouped_by || ' ' || group_id{numbers} FROM usage_daily_sums
         WHERE organization_id = 'org_1' AND day = 20000 AND kind = 'chat'
         ORDER BY project_id, grouped_by DESC, group_id"
    ))
    .all(&mut db.read().await.unwrap())
    .await
    .unwrap();
    rows.into_iter().map(|(row,)| row).collect()
}

#[on_each_database]
fn sums_start_with_all_daily_rows_and_include_those_of_earlier_servers(database: Database) {
    with_schema(database, 19, async |db| {
        add_to_day(&db, ["org_1", "proj_1", "key_1", "m"], 2, 10).await;
        add_to_day(&db, ["org_1", "proj_1", "key_1", "n"], 1, 4).await;
        add_to_day(&db, ["org_1", "proj_1", "user_1", "m"], 5, -3).await;
        // This row has whole units, like rows with large amounts.
        add_to_day(&db, ["org_1", "proj_2", "key_2", "m"], 1, 30_000_000_007).await;
        add_to_day(&db, ["org_2", "proj_3", "key_3", "m"], 1, 100).await;
        db.migrate().await.unwrap();
        // The completion tokens are ten times the prompt tokens, and a prompt token costs a hundred pico.
        let due = [
            "proj_1 model m 7 7 70 0 700",
            "proj_1 model n 1 4 40 0 400",
            "proj_1 caller key_1 3 14 140 0 1400",
            "proj_1 caller user_1 5 -3 -30 0 -300",
            "proj_2 model m 1 30000000007 300000000070 3 700",
            "proj_2 caller key_2 1 30000000007 300000000070 3 700",
        ];
        assert_eq!(sums(&db).await, due);

        // Servers before step 20 and servers of steps 20 to 38 add to existing rows and to new ones.
        for additions in [0, 1] {
            add_to_day_as(&db, additions, ["org_1", "proj_1", "key_1", "m"], 1, 1).await;
            add_to_day_as(&db, additions, ["org_1", "proj_1", &format!("key_{}", 4 + additions), "m"], 1, 2)
                .await;
            add_to_day_as(&db, additions, ["org_1", "proj_2", "key_2", "m"], 0, -20_000_000_000).await;
        }
        // This version adds to the sums itself, so its rows don't change them here.
        add_to_day_as(&db, 2, ["org_1", "proj_1", "key_1", "m"], 100, 100).await;
        add_to_day_as(&db, 2, ["org_1", "proj_1", "key_9", "z"], 100, 100).await;
        let due = [
            "proj_1 model m 11 13 130 0 1300",
            "proj_1 model n 1 4 40 0 400",
            "proj_1 caller key_1 5 16 160 0 1600",
            "proj_1 caller key_4 1 2 20 0 200",
            "proj_1 caller key_5 1 2 20 0 200",
            "proj_1 caller user_1 5 -3 -30 0 -300",
            "proj_2 model m 1 -9999999993 -99999999930 0 -999999999300",
            "proj_2 caller key_2 1 -9999999993 -99999999930 0 -999999999300",
        ];
        assert_eq!(sums(&db).await, due);
    });
}

#[on_postgres]
fn both_databases_have_the_same_schema(database: Database) {
    database.block_on(async {
        let folder = Folder::new();
        let sqlite = schema(&folder.migrated().await).await;
        let Some(cluster) = Cluster::shared() else { return };
        let postgres = Db::open(&Settings::Postgres { url: cluster.new_database().await }).unwrap();
        let postgres = schema(&postgres).await;
        let only = |title: &str, a: &BTreeSet<String>, b: &BTreeSet<String>| {
            let lines: Vec<&str> = a.difference(b).map(String::as_str).collect();
            if lines.is_empty() {
                String::new()
            } else {
                format!("\nonly on {title}:\n  {}", lines.join("\n  "))
            }
        };
        let difference = only("SQLite", &sqlite, &postgres) + &only("PostgreSQL", &postgres, &sqlite);
        assert!(difference.is_empty(), "{difference}\n");
        assert!(sqlite.len() > 100, "{sqlite:#?}");
    });
}

/// Returns the schema in a neutral format: a line for each column with its type, each key and each index.
async fn schema(db: &Db) -> BTreeSet<String> {
    let texts = if db.is_postgres() { POSTGRES } else { SQLITE };
    let mut lines = BTreeSet::new();
    for text in texts {
        let rows: Vec<(String,)> = sql(*text).heavy().all(&mut db.read().await.unwrap()).await.unwrap();
        lines.extend(rows.into_iter().map(|(line,)| line));
    }
    lines.retain(|line| !line.starts_with("refinery"));
    lines
}

const SQLITE: &[&str] = &[
    "SELECT t.name || '.' || c.name || ' '
         || CASE c.type WHEN 'INTEGER' THEN 'bigint' ELSE lower(c.type) END
         || CASE WHEN c.\"notnull\" = 1 THEN ' not null' ELSE '' END
         || COALESCE(' default ' || c.dflt_value, '')
     FROM sqlite_schema t, pragma_table_info(t.name) c
     WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    "SELECT name || ' primary key ' || group_concat(col, ',') FROM (
         SELECT t.name, c.name AS col FROM sqlite_schema t, pragma_table_info(t.name) c
         WHERE t.type = 'table' AND c.pk > 0 ORDER BY t.name, c.pk)
     GROUP BY name",
    "SELECT tab || CASE uniq WHEN 1 THEN ' unique' ELSE '' END || ' index ' || name || ' ' || group_concat(col, ',')
     FROM (SELECT t.name AS tab, i.name, i.\"unique\" AS uniq,
               c.name || CASE c.desc WHEN 1 THEN ' desc' ELSE '' END AS col
           FROM sqlite_schema t, pragma_index_list(t.name) i, pragma_index_xinfo(i.name) c
           WHERE t.type = 'table' AND i.origin = 'c' AND c.key = 1 ORDER BY i.name, c.seqno)
     GROUP BY name",
    "SELECT t.name || '.' || f.\"from\" || ' references ' || f.\"table\" || '.' || f.\"to\" || ' '
         || lower(f.on_delete)
     FROM sqlite_schema t, pragma_foreign_key_list(t.name) f WHERE t.type = 'table'",
    "SELECT 'strict table' || name FROM pragma_table_list
     WHERE type = 'table' AND schema = 'main' AND strict = 0 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         AND name <> 'refinery_schema_history'",
];

const POSTGRES: &[&str] = &[
    "SELECT CAST(table_name || '.' || column_name || ' '
         || CASE data_type WHEN 'bytea' THEN 'blob' WHEN 'integer' THEN 'bigint' WHEN 'smallint' THEN 'bigint'
              ELSE data_type END
         || CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
         || COALESCE(' default ' || replace(column_default, '::text', ''), '') AS TEXT)
     FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT CAST(t.relname || ' primary key ' || string_agg(a.attname, ',' ORDER BY k.position) AS TEXT)
     FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
         JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'public'
         CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, position)
         JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum
     WHERE i.indisprimary GROUP BY t.relname",
    "SELECT CAST(t.relname || CASE WHEN i.indisunique THEN ' unique' ELSE '' END || ' index ' || x.relname || ' '
         || string_agg(a.attname || CASE WHEN i.indoption[k.position - 1] & 1 = 1 THEN ' desc' ELSE '' END, ','
                       ORDER BY k.position) AS TEXT)
     FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid
         JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'public'
         CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, position)
         JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum
     WHERE NOT i.indisprimary GROUP BY t.relname, x.relname, i.indisunique",
    "SELECT CAST(t.relname || '.' || a.attname || ' references ' || r.relname || '.' || b.attname || ' '
         || CASE c.confdeltype WHEN 'c' THEN 'cascade' WHEN 'a' THEN 'no action' ELSE 'other' END AS TEXT)
     FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class r ON r.oid = c.confrelid
         JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'public'
         JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = c.conkey[1]
         JOIN pg_attribute b ON b.attrelid = r.oid AND b.attnum = c.confkey[1]
     WHERE c.contype = 'f'",
];
