//! A database that refuses writes to one table.

use super::books::change;
use super::world::World;

/// Makes the database refuse every write to a table.
pub async fn refuse_writes(world: &World, table: &str) {
    if world.backend == "sqlite" {
        for write in ["INSERT", "UPDATE", "DELETE"] {
            let refusal = "BEGIN SELECT RAISE(ABORT, 'not now'); END";
            let trigger =
                format!("CREATE TRIGGER {table}_refuses_{write} BEFORE {write} ON {table} {refusal}");
            change(world, &trigger).await;
        }
        return;
    }
    let refusal = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
                   AS 'BEGIN RAISE EXCEPTION ''not now''; END'";
    change(world, refusal).await;
    let writes = "INSERT OR UPDATE OR DELETE";
    let trigger = format!(
        "CREATE TRIGGER {table}_refuses_writes BEFORE {writes} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
    );
    change(world, &trigger).await;
}

/// Undoes [`refuse_writes`].
pub async fn accept_writes(world: &World, table: &str) {
    if world.backend == "sqlite" {
        for write in ["INSERT", "UPDATE", "DELETE"] {
            change(world, &format!("DROP TRIGGER {table}_refuses_{write}")).await;
        }
    } else {
        change(world, &format!("DROP TRIGGER {table}_refuses_writes ON {table}")).await;
    }
}
