//! Events: lists, signed deliveries, and the envelope that our client parses.

use tollkeeper::kernel::secrets::Secret;
use tollkeeper::stripe::signature::{SignatureError, verify};
use tollkeeper::stripe::{Created, Event};

use super::{Account, START};
use support::chance::Chance;
use support::receiver::{self, Receiver};
use support::stripe::WEBHOOK_SECRET;
use support::stripe::webhook::Endpoint;

fn endpoint(receiver: &Receiver) -> Endpoint {
    Endpoint { url: receiver.url(), secret: WEBHOOK_SECRET.to_owned() }
}

#[tokio::test]
async fn deliveries_are_signed_and_repeated_until_they_are_taken() {
    let account = Account::start().await;
    let intent = account.pay(1_000, "pay_1").await;
    let receiver = Receiver::start("HTTP/1.1 500 x\r\n\r\n").await;
    let first = account.stripe.deliver_new(&endpoint(&receiver)).await;
    assert!(first.iter().all(|delivery| delivery.status == Some(500)));
    receiver.answer(receiver::OK);
    receiver.take();
    let second = account.stripe.deliver_new(&endpoint(&receiver)).await;
    assert_eq!(first.len(), second.len());
    assert!(account.stripe.deliver_new(&endpoint(&receiver)).await.is_empty());

    let now = account.clock.now();
    let events: Vec<_> = receiver
        .take()
        .into_iter()
        .map(|received| {
            let header = &received.headers["stripe-signature"];
            let good = verify(header, received.body.as_bytes(), &Secret::new(WEBHOOK_SECRET), now);
            assert_eq!(good, Ok(()));
            let other = verify(header, received.body.as_bytes(), &Secret::new("whsec_other"), now);
            assert_eq!(other, Err(SignatureError::Wrong));
            Event::parse(received.body.as_bytes()).unwrap()
        })
        .collect();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    let sent: Vec<_> = second.iter().map(|delivery| delivery.kind.as_str()).collect();
    assert_eq!(kinds, sent);
    let last = events.last().unwrap();
    assert_eq!((last.kind.as_str(), last.created, last.livemode), ("payment_intent.succeeded", START, false));
    assert_eq!(last.data.object.payment_intent_id(), Some(intent.id.as_str()));
    let charge = events.iter().find(|event| event.kind == "charge.succeeded").unwrap();
    assert_eq!(charge.data.object.payment_intent_id(), Some(intent.id.as_str()));
    // The API returns the same events.
    assert_eq!(&account.client.event(&last.id).await.unwrap(), last);
    let listed =
        account.client.events(&["charge.succeeded", "charge.failed"], &Created::default()).await.unwrap();
    assert_eq!(listed.data, std::slice::from_ref(charge));
    let all = account.client.events(&[], &Created { from: Some(START), ..Created::default() }).await.unwrap();
    assert_eq!(all.data.len(), events.len());
}

#[tokio::test]
async fn wild_deliveries_repeat_and_reorder_but_lose_nothing() {
    let account = Account::start().await;
    for index in 0..5 {
        account.pay(1_000, &format!("pay_{index}")).await;
    }
    let ids: Vec<_> =
        account.stripe.undelivered().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    let receiver = Receiver::start(receiver::OK).await;
    account.stripe.deliver_wildly(&endpoint(&receiver), &mut Chance::new(7)).await;
    let received: Vec<_> =
        receiver.take().iter().map(|one| one.json()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(received.len(), ids.len() + ids.len() / 2);
    assert_ne!(received[..ids.len()], ids);
    assert!(ids.iter().all(|id| received.contains(id)));
    assert!(account.stripe.undelivered().is_empty());
}
