//! Background jobs.

mod cleanup;
mod retention;

use tollkeeper::clock::{DAY_MS, HOUR_MS, Time};
use tollkeeper::db::{self, FromRow, Row, sql};
use tollkeeper::ids::SessionId;
use tollkeeper::jobs::sweep::sweep;

use support::on_each_database;
use support::world::{World, insert_session};

const MONTH_MS: i64 = 30 * DAY_MS;

/// An id, a detail, or a line of a query plan.
struct Line(String);

impl FromRow for Line {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        ["id", "detail", "QUERY PLAN"]
            .iter()
            .find_map(|column| row.get(column).ok())
            .map(Self)
            .ok_or_else(|| db::Error::Internal("no text".into()))
    }
}

async fn sessions(world: &World) -> Vec<String> {
    let mut tx = world.app.db.read().await.unwrap();
    let rows: Vec<Line> = sql("SELECT id FROM sessions ORDER BY id").all(&mut tx).await.unwrap();
    rows.into_iter().map(|row| row.0).collect()
}

#[on_each_database]
async fn ended_sessions_are_removed_after_a_month(world: World) {
    let start = world.clock.now();
    let ada = world.user("ada").await;
    let open = async |expires_at: Time, ended_at: Option<Time>| {
        let id = SessionId::new(start, &world.app.random);
        let mut tx = world.app.db.write().await.unwrap();
        insert_session(&mut tx, id, ada.id, start, expires_at).await;
        if let Some(at) = ended_at {
            tollkeeper::accounts::store::sessions::end(&mut tx, id, at).await.unwrap();
        }
        tx.commit().await.unwrap();
        id
    };
    let after = |ms: i64| start.plus_ms(ms);
    let logged_out = open(after(MONTH_MS), Some(after(HOUR_MS))).await;
    let logged_out_later = open(after(MONTH_MS), Some(after(HOUR_MS + 1))).await;
    let short = open(after(2 * HOUR_MS), None).await;
    let expected = async |mut ids: Vec<SessionId>| {
        sweep(&world.app).await.unwrap();
        ids.push(ada.session_id);
        let mut ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        ids.sort();
        assert_eq!(sessions(&world).await, ids);
    };
    expected(vec![logged_out, logged_out_later, short]).await;
    world.clock.advance_ms(MONTH_MS + HOUR_MS - 1);
    expected(vec![logged_out, logged_out_later, short]).await;
    world.clock.advance_ms(1);
    expected(vec![logged_out_later, short]).await;
    world.clock.advance_ms(1);
    expected(vec![short]).await;
    world.clock.advance_ms(HOUR_MS - 2);
    expected(vec![short]).await;
    world.clock.advance_ms(1);
    expected(vec![]).await;
    // Ada never logged out: her session lasts a month, and is kept for another month.
    world.clock.advance_ms(MONTH_MS - 2 * HOUR_MS - 1);
    expected(vec![]).await;
    world.clock.advance_ms(1);
    sweep(&world.app).await.unwrap();
    assert_eq!(sessions(&world).await, Vec::<String>::new());
}

#[on_each_database]
async fn old_sessions_are_removed_in_slices_by_an_index(world: World) {
    let start = world.clock.now();
    let ada = world.user("ada").await;
    let mut tx = world.app.db.write().await.unwrap();
    for _ in 0..5 {
        let id = SessionId::new(start, &world.app.random);
        insert_session(&mut tx, id, ada.id, start, start).await;
    }
    let over = async |tx: &mut db::Tx, then: Time| {
        tollkeeper::accounts::store::sessions::remove_ended_before(tx, then, 3).await.unwrap()
    };
    assert_eq!(over(&mut tx, start.plus_ms(-1)).await, 0);
    assert_eq!(
        [over(&mut tx, start).await, over(&mut tx, start).await, over(&mut tx, start).await],
        [3, 2, 0]
    );
    let question = "SELECT id FROM sessions WHERE expires_at <= 1 OR ended_at <= 1";
    let explain = if world.app.db.is_postgres() {
        // Without this setting, a few rows would be read by a full scan.
        sql("SET LOCAL enable_seqscan = off").execute(&mut tx).await.unwrap();
        "EXPLAIN"
    } else {
        "EXPLAIN QUERY PLAN"
    };
    let plan: Vec<Line> = sql(format!("{explain} {question}")).all(&mut tx).await.unwrap();
    let plan: Vec<_> = plan.into_iter().map(|line| line.0).collect();
    for index in ["sessions_expires_at", "sessions_ended_at"] {
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:?}");
    }
}
