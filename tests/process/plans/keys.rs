//! Statements about API keys and their secrets. They use an index, regardless of the number of keys.

use support::on_each_database;
use support::world::World;
use tollkeeper::db::sql;
use tollkeeper::keys::store::api_keys::{self, endings, listing, makers};
use tollkeeper::tenants::store::projects;

#[on_each_database]
async fn keys_and_secrets_are_found_by_an_index(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (organization, project) = (&place.organization, &place.project);
    let (me, keys) = (ada.id.to_string(), "'key_x' || CAST(i AS TEXT)");
    // Each row adds one to a count. Several transactions are used, because one transaction would keep every
    // version of that row.
    for from in (1..=3_000).step_by(500) {
        let to = from + 499;
        let series =
            format!("WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})");
        let secret = |kind: &str, ends_at: &str| {
            format!(
                "{series} INSERT INTO api_key_secrets (secret_hash, api_key_id, created_at, ends_at)
                     SELECT CAST('{kind}' || CAST(i AS TEXT) AS {}), {keys}, i, {ends_at} FROM n",
                if world.app.db.is_postgres() { "BYTEA" } else { "BLOB" }
            )
        };
        let mut tx = world.app.db.write().await.unwrap();
        for text in [
            format!(
                "{series} INSERT INTO api_keys (id, organization_id, project_id, name, name_folded, permissions,
                         created_by, created_at, updated_at)
                     SELECT {keys}, '{organization}', '{project}', {keys}, {keys}, 'chat', '{me}', i, i FROM n"
            ),
            secret("current", "NULL"),
            secret("previous", "i"),
        ] {
            sql(text).execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    let mut tx = world.app.db.write().await.unwrap();
    sql("ANALYZE").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let plan = super::plan(&world, api_keys::END_PREVIOUS_SECRET, &["key_x7", "5"]).await;
    let what = format!("on {}: {plan}", world.backend);
    assert!(plan.contains("api_key_secrets_api_key_id"), "{what}");

    // The keys of a user who has created only a few of all keys.
    let parameters = [organization.as_str(), "user_x", "", "0", "51"];
    let plan = super::plan(&world, makers::LIST, &parameters).await;
    assert!(plan.contains("api_keys_created_by"), "on {}: {plan}", world.backend);
    // Only the page is read from the table. The count is in the project's row.
    for text in [listing::FROM_START.as_str(), listing::FROM_END.as_str()] {
        let plan = super::plan(&world, text, &[project.as_str(), "20", "1000"]).await;
        let what = format!("on {}: {plan}", world.backend);
        assert!(plan.contains("api_keys_project_id_created_at"), "{what}");
        assert!(!plan.contains("SCAN k"), "{what}");
    }

    let ending = [
        (
            endings::EXPIRING,
            vec![organization, me.as_str(), "1", "2", "20"],
            "api_keys_organization_id_expires_at",
        ),
        (projects::API_KEYS, vec!["prj_x"], "api_keys_project_id_created_at"),
        (endings::NOT_ANNOUNCED, vec!["1", "2", "20"], "api_keys_expiry_not_announced"),
        (endings::ROTATING, vec![organization, me.as_str(), "2998", "20"], "api_key_secrets_ends_at"),
    ];
    for (text, parameters, index) in ending {
        let plan = super::plan(&world, text, &parameters).await;
        assert!(plan.contains(index), "on {}: {plan}", world.backend);
    }
}
