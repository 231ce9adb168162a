//! Daily rows and their sums. They add exactly to the last pico, beyond 64 bits and below zero.

use tollkeeper::billing::store::usage::days::{self, DailyKey, DailySums};
use tollkeeper::billing::store::usage::recording::{Payer, RatedEvent};
use tollkeeper::billing::store::usage::sums;
use tollkeeper::catalog::Kind;
use tollkeeper::clock::Time;
use tollkeeper::db::sql;
use tollkeeper::ids::{ApiKeyId, CallerId, OrganizationId, ProjectId};
use tollkeeper::money::Pico;

use support::chance::Chance;
use support::on_each_database;
use support::world::World;

/// The maximum cost of one event: 1,000,000 units of the currency, in pico.
const MAX_EVENT_PICO: i128 = 1_000_000_000_000_000_000;
/// The maximum sum in pico that is stored without whole units.
const MAX_PLAIN_PICO: i128 = 4_000_000_000_000_000_000;
/// The maximum of a daily row: 9,200,000,000 units of the currency, in pico.
const MAX_ROW_PICO: i128 = 9_200_000_000_000_000_000_000;

fn event(world: &World, model: &str, pico: i128) -> RatedEvent {
    let now = world.clock.now();
    let caller = model.bytes().fold(0, |sum, byte| sum * 256 + u128::from(byte));
    RatedEvent {
        payer: Payer {
            organization_id: OrganizationId::from_parts(now, 1),
            project_id: ProjectId::from_parts(now, 1),
        },
        source: "s".into(),
        event_id: "e".into(),
        payload_hash: [0; 32],
        // Each model has its own caller, so both sums include only one row.
        caller: CallerId::ApiKey(ApiKeyId::from_parts(now, caller)),
        model: model.into(),
        kind: Kind::Chat,
        occurred_at: Time::from_unix_ms(now.unix_ms()),
        prompt_tokens: 1,
        completion_tokens: 0,
        cached_prompt_tokens: None,
        parts: Default::default(),
        is_estimated: false,
        price_version: 0,
        amount: Pico::from_units(pico),
        corrects: (pico < 0).then(|| "another".into()),
    }
}

/// Adds these amounts in one transaction. Returns the increase of the posted amount, or `None` if they don't
/// fit.
async fn add(world: &World, model: &str, amounts: &[i128]) -> Option<i128> {
    let events: Vec<_> = amounts.iter().map(|pico| event(world, model, *pico)).collect();
    let mut each = events.iter().map(DailySums::of);
    let sums = each.try_fold(DailySums::default(), DailySums::plus)?;
    let key = DailyKey::of(&events[0], events[0].occurred_at.day().month());
    let mut tx = world.app.db.write().await.unwrap();
    let before = days::add(&mut tx, &[(key, sums)]).await.unwrap()?[0];
    assert!(sums::add(&mut tx, &key.sum_keys().map(|key| (key, sums))).await.unwrap());
    tx.commit().await.unwrap();
    let after = Pico::from_units(before.units() + sums.amount.units());
    Some(after.floor_nano().units() - before.floor_nano().units())
}

/// Returns the whole units, the pico and the posted amount of the row, after comparing it with the sums by
/// model and by caller.
async fn row(world: &World, model: &str) -> (i128, i128, i128) {
    let mut tx = world.app.db.read().await.unwrap();
    let compared: Vec<(i64, i64, i64, i64)> =
        sql("SELECT s.amount_whole, s.amount_pico, d.amount_whole, d.amount_pico
         FROM usage_daily d JOIN usage_daily_sums s ON s.group_id IN (d.model, d.api_key_id)
             AND s.requests = d.requests AND s.prompt_tokens = d.prompt_tokens WHERE d.model = $1")
        .bind(model)
        .all(&mut tx)
        .await
        .unwrap();
    let amount = |whole, pico| i128::from(whole) * 1_000_000_000_000 + i128::from(pico);
    assert_eq!(compared.len(), 2);
    for (sum_whole, sum_pico, whole, pico) in compared {
        assert_eq!(amount(sum_whole, sum_pico), amount(whole, pico));
    }
    let (whole, pico, posted): (i64, i64, i64) =
        sql("SELECT amount_whole, amount_pico, posted_nano FROM usage_daily WHERE model = $1")
            .bind(model)
            .one(&mut tx)
            .await
            .unwrap();
    (whole.into(), pico.into(), posted.into())
}

#[on_each_database]
async fn sums_are_exact(world: World) {
    for seed in 0..6 {
        let (mut chance, model) = (Chance::new(seed), format!("m{seed}"));
        let (mut total, mut posted, mut plain) = (0_i128, 0_i128, true);
        for _ in 0..120 {
            let count = [1, 1, 3, 2_000][chance.below(4)];
            let sign = if chance.below(2) == 0 { 1 } else { -1 };
            let most = chance.one_of(&[1_500, 1_000_000_000_000, 1_000_000_000_000_000_000]);
            let amounts: Vec<_> = (0..count).map(|_| sign * (chance.below(most) as i128 + 1)).collect();
            let after = total + amounts.iter().sum::<i128>();
            let rise = add(&world, &model, &amounts).await;
            assert_eq!(rise.is_some(), after.abs() <= MAX_ROW_PICO, "{total} {after}");
            let Some(rise) = rise else { continue };
            (total, posted) = (after, posted + rise);
            plain &= total.abs() <= MAX_PLAIN_PICO;
            let (whole, pico, in_row) = row(&world, &model).await;
            assert_eq!(whole * 1_000_000_000_000 + pico, total);
            assert_eq!((posted, in_row), (total.div_euclid(1_000), total.div_euclid(1_000)));
            assert!(pico.abs() <= MAX_PLAIN_PICO + 2, "{pico}");
            assert!(!plain || whole == 0, "an older server reads it correctly: {whole} {pico}");
        }
    }
}

#[on_each_database]
async fn row_accepts_the_last_pico_that_fits_and_no_more(world: World) {
    for (model, sign) in [("up", 1), ("down", -1)] {
        for _ in 0..4 {
            assert!(add(&world, model, &[sign * MAX_EVENT_PICO; 2_000]).await.is_some());
        }
        assert!(add(&world, model, &[sign * MAX_EVENT_PICO; 1_200]).await.is_some());
        assert_eq!(row(&world, model).await.2, sign * MAX_ROW_PICO / 1_000);
        assert_eq!(add(&world, model, &[sign]).await, None);
        assert_eq!(add(&world, model, &[sign * MAX_EVENT_PICO; 2_000]).await, None);
        assert!(add(&world, model, &[-sign, sign]).await.is_some());
        let first = event(&world, model, sign * MAX_EVENT_PICO);
        let key = DailyKey::of(&first, first.occurred_at.day().month()).sum_keys()[0];
        let mut tx = world.app.db.write().await.unwrap();
        // A sum has room for other rows, up to 64 bits of tokens.
        assert!(sums::add(&mut tx, &[(key, DailySums::of(&first))]).await.unwrap());
        sql("UPDATE usage_daily_sums SET prompt_tokens = 9223372036854775806 WHERE group_id = $1")
            .bind(model)
            .execute(&mut tx)
            .await
            .unwrap();
        assert!(!sums::add(&mut tx, &[(key, DailySums::of(&first))]).await.unwrap());
        drop(tx);
        let (whole, pico, _) = row(&world, model).await;
        assert_eq!(whole * 1_000_000_000_000 + pico, sign * MAX_ROW_PICO);
    }
    // Values that an older server stored with up to 64 bits of pico are carried over to whole units too.
    assert!(add(&world, "old", &[MAX_EVENT_PICO; 3]).await.is_some());
    for (left, more) in [(i64::MAX, 4 * MAX_EVENT_PICO), (i64::MIN + 1, -4 * MAX_EVENT_PICO)] {
        let mut tx = world.app.db.write().await.unwrap();
        sql("UPDATE usage_daily SET amount_pico = $1, amount_whole = 0 WHERE model = 'old'")
            .bind(left)
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert!(add(&world, "old", &[more / 4; 4]).await.is_some());
        let (whole, pico, posted) = row(&world, "old").await;
        assert_eq!(whole * 1_000_000_000_000 + pico, i128::from(left) + more);
        assert_eq!(posted, (i128::from(left) + more).div_euclid(1_000));
    }
}
