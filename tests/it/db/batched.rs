//! Batched reads: each caller gets its own answer, whatever happens to the others.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tollkeeper::accounts::store::users;
use tollkeeper::billing::store::usage::totals::{self, RangeTotals, TotalsRange};
use tollkeeper::clock::{Month, Time};
use tollkeeper::db::{Db, Error, Settings, Tx, sql};
use tollkeeper::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use tollkeeper::keys::store::api_keys;
use tollkeeper::tenants::store::{project_members, projects, standings};

use super::{each_db, insert_user};
use crate::support::postgres::Cluster;
use crate::support::world::{World, on_each_database};

const EMAIL: &str = "SELECT email FROM users WHERE id = $1";

async fn email(db: Db, id: String) -> Result<Option<String>, Error> {
    let found: Option<(String,)> = sql(EMAIL).bind(id).batched().optional(&mut db.read().await?).await?;
    Ok(found.map(|(email,)| email))
}

/// Reads all of them at the same time.
async fn ask(db: &Db, ids: &[String]) -> HashMap<String, Result<Option<String>, Error>> {
    let mut asking = JoinSet::new();
    for id in ids {
        let (db, id) = (db.clone(), id.clone());
        asking.spawn(async move { (id.clone(), email(db, id).await) });
    }
    asking.join_all().await.into_iter().collect()
}

async fn add_users(db: &Db, count: usize) {
    let mut tx = db.write().await.unwrap();
    for number in 0..count {
        let name = format!("{number}@a.test");
        insert_user(&mut tx, &format!("user_{number}"), &name, &name).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn each_caller_gets_its_own_answer() {
    each_db(async |db| {
        add_users(&db, 300).await;
        // Every third doesn't exist; more ids than one statement takes.
        let ids: Vec<String> = (0..1_500)
            .map(|number| match number % 3 {
                0 => format!("nobody_{number}"),
                _ => format!("user_{}", number % 300),
            })
            .collect();
        let answers = ask(&db, &ids).await;
        for id in &ids {
            let email = id.strip_prefix("user_").map(|number| format!("{number}@a.test"));
            assert_eq!(answers[id], Ok(email), "{id}");
        }
        assert_eq!(db.batched_reads() > 1_000, db.is_postgres(), "{}", db.batched_reads());
        // Sequential reads are not batched.
        let before = db.batched_reads();
        for id in &ids[..20] {
            assert_eq!(&email(db.clone(), id.clone()).await, &answers[id]);
        }
        assert_eq!(db.batched_reads(), before);
    })
    .await;
}

#[tokio::test]
async fn refused_or_cancelled_read_does_not_affect_others() {
    each_db(async |db| {
        add_users(&db, 40).await;
        let mut ids: Vec<String> = (0..40).map(|number| format!("user_{number}")).collect();
        // PostgreSQL has no text with this character.
        ids.insert(20, "user_\0".to_owned());
        let answers = ask(&db, &ids).await;
        assert_eq!(answers["user_\0"].is_err(), db.is_postgres(), "{:?}", answers["user_\0"]);
        for number in 0..40 {
            assert_eq!(answers[&format!("user_{number}")], Ok(Some(format!("{number}@a.test"))));
        }
        for round in 0..20 {
            let mut leaving: Vec<_> =
                (0..40).map(|number| tokio::spawn(email(db.clone(), format!("user_{number}")))).collect();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            let staying = leaving.split_off(20);
            leaving.iter().for_each(tokio::task::JoinHandle::abort);
            for (number, one) in staying.into_iter().enumerate() {
                let answer = tokio::time::timeout(Duration::from_secs(20), one).await;
                assert_eq!(
                    answer.expect("it waits for ever").unwrap(),
                    Ok(Some(format!("{}@a.test", number + 20)))
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn closed_connection_loses_no_answer() {
    let Some(cluster) = Cluster::private() else { return };
    let url = cluster.new_database().await;
    let db = Db::open(&Settings::Postgres { url }).unwrap();
    add_users(&db, 100).await;
    let ids: Vec<String> = (0..100).map(|number| format!("user_{number}")).collect();
    let end =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tollkeeper'";
    for _ in 0..10 {
        let (answers, ended) = tokio::join!(ask(&db, &ids), cluster.ask(end));
        // A connection may be ended twice during the same read; then the read fails.
        let wrong =
            answers.values().filter(|answer| !matches!(answer, Ok(Some(_)) | Err(Error::Unavailable(_))));
        assert_eq!(wrong.count(), 0, "{answers:?}");
        assert!(ended >= 0);
        assert!(ask(&db, &ids).await.values().all(|answer| matches!(answer, Ok(Some(_)))));
    }
}

#[tokio::test]
async fn waiting_reads_are_bounded() {
    let Some(cluster) = Cluster::shared() else { return };
    let db = Db::open(&Settings::Postgres { url: cluster.new_database().await }).unwrap();
    add_users(&db, 10).await;
    // No read is answered until this ends.
    let mut tx = db.write().await.unwrap();
    sql("LOCK TABLE users IN ACCESS EXCLUSIVE MODE").execute(&mut tx).await.unwrap();
    let mut asking = JoinSet::new();
    for number in 0..66_000 {
        asking.spawn(email(db.clone(), format!("user_{}", number % 10)));
    }
    // One is running, 65,536 wait, and the others are refused at once.
    for _ in 0..66_000 - 65_537 {
        match asking.join_next().await.unwrap().unwrap() {
            Err(Error::Unavailable(what)) => assert_eq!(what, "too many reads wait"),
            other => panic!("{other:?}"),
        }
    }
    // A cancelled read makes room.
    asking.abort_all();
    while asking.join_next().await.is_some() {}
    let one_more = tokio::spawn(email(db.clone(), "user_1".to_owned()));
    tokio::task::yield_now().await;
    tx.commit().await.unwrap();
    assert_eq!(one_more.await.unwrap(), Ok(Some("1@a.test".to_owned())));
}

/// All batched reads of the store, for one user.
#[derive(PartialEq, Debug)]
struct StoreAnswers {
    account: Option<users::User>,
    organization: Option<standings::OrganizationStanding>,
    roles: Option<standings::StandingWith<()>>,
    project: Option<standings::StandingWith<standings::ProjectAndOrganization>>,
    member: Option<standings::StandingWith<project_members::Member>>,
    key: Option<standings::StandingWith<api_keys::ApiKey>>,
    detail: Option<projects::ProjectDetail>,
    used: Vec<RangeTotals>,
    live_key: Option<ApiKeyId>,
}

#[derive(Clone, Copy)]
struct Place(OrganizationId, Option<ProjectId>, Option<ApiKeyId>, UserId, [u8; 32]);

async fn read_store(
    tx: &mut Tx,
    Place(organization, project, key, user, secret): Place,
) -> Result<StoreAnswers, Error> {
    let part = TotalsRange { from: Month::from_unix_months(0), is_large: false };
    let (mut detail, mut used) = (None, Vec::new());
    if let Some(project) = project {
        detail = projects::detail(tx, organization, project).await?;
        used.push(totals::project(tx, organization, project, part).await?);
    }
    if let Some(key) = key {
        used.push(totals::key(tx, organization, key, part).await?);
    }
    Ok(StoreAnswers {
        detail,
        used,
        account: users::by_id(tx, user).await?,
        organization: standings::in_organization(tx, organization, user).await?,
        roles: standings::in_project(tx, organization, project, user, ()).await?,
        project: standings::in_project(tx, organization, project, user, ()).await?,
        member: standings::in_project(tx, organization, project, user, Some(user)).await?,
        key: standings::in_project(tx, organization, project, user, key).await?,
        live_key: api_keys::by_secret_hash(tx, secret).await?.map(|key| key.id),
    })
}

#[test]
fn batched_store_reads_equal_single_reads() {
    on_each_database(async |world| {
        let mut places = vec![];
        for name in ["ada", "bob", "eve"] {
            let person = world.user(name).await;
            let place = world.place(&person, name).await;
            let (key, _) = world.key(&person, &place, &json!({"name": "k"})).await;
            let (secret,) = sql("SELECT secret_hash FROM api_key_secrets WHERE api_key_id = $1")
                .bind(key.as_str())
                .one(&mut world.app.db.read().await.unwrap())
                .await
                .unwrap();
            let organization = OrganizationId::parse(&place.organization).unwrap();
            let project = ProjectId::parse(&place.project);
            for other in places.iter().map(|&Place(.., user, _)| user).chain([person.id]).collect::<Vec<_>>()
            {
                places.push(Place(organization, project, ApiKeyId::parse(&key), other, secret));
                places.push(Place(organization, project, None, other, [7; 32]));
                places.push(Place(organization, None, None, other, [7; 32]));
            }
        }
        places.push(Place(places[0].0, places[8].1, places[8].2, places[0].3, places[8].4));
        let now = Time::from_unix_ms(0);
        places.push(Place(OrganizationId::new(now, &world.app.random), None, None, places[0].3, places[0].4));
        let before = world.app.db.batched_reads();
        let mut asking = JoinSet::new();
        for round in 0..8 {
            for (index, &place) in places.iter().enumerate() {
                let db = world.app.db.clone();
                asking.spawn(async move {
                    let together = read_store(&mut db.read().await.unwrap(), place).await.unwrap();
                    ((round, index), together)
                });
            }
        }
        for ((_, index), together) in asking.join_all().await {
            let read_store_in_a_transaction = read_store_in_a_transaction(&world, places[index]).await;
            assert_eq!(together, read_store_in_a_transaction);
        }
        let shared = world.app.db.batched_reads() - before;
        // Seven statements for each place; for each of them nearly all reads arrive while another is running.
        assert_eq!(shared > 7 * 7 * places.len() as u64, world.app.db.is_postgres(), "{shared}");
    });
}

/// In a transaction each read is a statement of its own.
async fn read_store_in_a_transaction(world: &World, place: Place) -> StoreAnswers {
    read_store(&mut world.app.db.write().await.unwrap(), place).await.unwrap()
}
