//! If the balance is high enough, the upstream gets the call while the money is being reserved.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tollkeeper::db::{Tx, sql};

use super::{Scene, with_upstream};
use support::upstream::{Step, json_answer};
use support::{Database, on_each_database};

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10})
}

fn good() -> Vec<Step> {
    json_answer(200, &json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}))
}

/// Begins a change of the organization's credit limit. Until it is committed no money can be reserved.
async fn set_credit_limit(scene: &Scene, nano: i64) -> Tx {
    let organization = scene.place.organization_path();
    let id = organization.rsplit('/').next().unwrap().to_owned();
    let mut tx = scene.world.app.db.write().await.unwrap();
    let change =
        sql("UPDATE wallets SET credit_limit_nano = $2 WHERE organization_id = $1").bind(id).bind(nano);
    assert_eq!(change.execute(&mut tx).await.unwrap(), 1);
    tx
}

/// Waits until the upstream has this many requests.
async fn received(scene: &Scene, count: usize) {
    let reached = async {
        while scene.upstream.received().len() < count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), reached).await.expect("the upstream wasn't called");
}

#[on_each_database]
fn upstream_is_asked_while_money_is_reserved(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.script([good()]);
        let plenty = set_credit_limit(scene, 1_000_000_000_000).await;
        plenty.commit().await.unwrap();
        // The gateway learns the balance from the first call.
        scene.chat(&body()).bare().await;
        let locked = set_credit_limit(scene, 1_000_000_000_000).await;
        let mut answer = Box::pin(scene.chat(&body()).send());
        tokio::select! {
            early = &mut answer => panic!("an answer before the money is reserved: {}", early.text),
            () = received(scene, 2) => {}
        }
        // The whole answer has arrived, but waits for the reservation.
        assert!(timeout(Duration::from_millis(300), &mut answer).await.is_err());
        locked.commit().await.unwrap();
        assert_eq!(answer.await.status, 200);
        assert_eq!(scene.used().await, [(1, 1); 2]);
    });
}

#[on_each_database]
fn early_start_ends_with_the_refusal(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.script([good(), vec![Step::AwaitClose]]);
        set_credit_limit(scene, 1_000_000_000_000).await.commit().await.unwrap();
        scene.chat(&body()).bare().await;
        let locked = set_credit_limit(scene, 0).await;
        let mut answer = Box::pin(scene.chat(&body()).send());
        tokio::select! {
            early = &mut answer => panic!("{}", early.text),
            () = received(scene, 2) => {}
        }
        locked.commit().await.unwrap();
        let answer = answer.await;
        assert_eq!((answer.status, answer.code().as_str()), (402, "insufficient_quota"), "{}", answer.text);
        scene.upstream.left(1).await;
        assert_eq!(scene.used().await, [(1, 1)]);
        // From now on, money is reserved first.
        assert_eq!(scene.chat(&body()).send().await.status, 402);
        assert_eq!(scene.upstream.received().len(), 2);
    });
}

#[on_each_database]
fn little_money_is_reserved_first(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.script([good()]);
        // A call reserves about 600 tokens at 0.000001, and 10 tokens at 0.00001: 20 calls cost 0.014.
        set_credit_limit(scene, 10_000_000).await.commit().await.unwrap();
        scene.chat(&body()).bare().await;
        let locked = set_credit_limit(scene, 10_000_000).await;
        let mut answer = Box::pin(scene.chat(&body()).send());
        assert!(timeout(Duration::from_millis(500), &mut answer).await.is_err());
        assert_eq!(scene.upstream.received().len(), 1);
        locked.commit().await.unwrap();
        assert_eq!(answer.await.status, 200);
    });
}
