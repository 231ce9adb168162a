//! Refunds and disputes.

use tollkeeper::stripe::{Created, DisputeStatus, NewRefund, RefundStatus};

use super::{Account, key};
use support::stripe::refunds::RefundOutcome;

fn part(payment_intent: &str, amount: Option<i64>) -> NewRefund<'_> {
    let metadata = [("refund_id".to_owned(), "ref_1".to_owned())].into();
    NewRefund { payment_intent, amount, reason: Some("requested_by_customer"), metadata }
}

#[tokio::test]
async fn payment_is_refunded_in_parts() {
    let account = Account::start().await;
    let intent = account.pay(2_500, "pay_1").await;
    account.new_events();
    let first = account.client.create_refund(&part(&intent.id, Some(1_000)), &key("ref_1")).await.unwrap();
    assert_eq!(
        (first.status, first.amount, first.currency.as_str()),
        (Some(RefundStatus::Succeeded), 1_000, "usd")
    );
    assert_eq!(first.payment_intent.as_ref().unwrap().id(), intent.id);
    assert_eq!(first.metadata["refund_id"], "ref_1");
    assert_eq!(account.new_events(), ["refund.created", "charge.refunded"]);
    let again = account.client.create_refund(&part(&intent.id, Some(1_000)), &key("ref_1")).await.unwrap();
    assert_eq!(again, first);
    let too_much =
        account.client.create_refund(&part(&intent.id, Some(1_501)), &key("ref_2")).await.unwrap_err();
    assert_eq!(too_much.refusal().unwrap().param.as_deref(), Some("amount"));
    account.client.create_refund(&part(&intent.id, None), &key("ref_3")).await.unwrap();
    let intent = account.client.payment_intent(&intent.id).await.unwrap();
    let charge = intent.latest_charge.as_ref().unwrap().object().unwrap();
    assert_eq!((charge.amount_refunded, charge.refunded), (2_500, true));
    let error = account.client.create_refund(&part(&intent.id, None), &key("ref_4")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().code.as_deref(), Some("charge_already_refunded"));
    let listed = account.client.refunds(Some(&intent.id), &Created::default()).await.unwrap();
    assert_eq!(listed.data.iter().map(|refund| refund.amount).collect::<Vec<_>>(), [1_500, 1_000]);
    assert!(account.client.refunds(Some("pi_other"), &Created::default()).await.unwrap().data.is_empty());
    assert_eq!(account.stripe.balance(), 0);
}

#[tokio::test]
async fn refunds_may_wait_and_fail() {
    let account = Account::start().await;
    let intent = account.pay(2_500, "pay_1").await;
    let refunded = async || {
        let intent = account.client.payment_intent(&intent.id).await.unwrap();
        intent.latest_charge.unwrap().object().unwrap().amount_refunded
    };
    account.stripe.set_refunds(RefundOutcome::Pending);
    let first = account.client.create_refund(&part(&intent.id, Some(1_000)), &key("ref_1")).await.unwrap();
    assert_eq!((first.status, refunded().await), (Some(RefundStatus::Pending), 1_000));
    account.stripe.settle_refund(&first.id, true);
    let first = account.client.refund(&first.id).await.unwrap();
    assert_eq!((first.status, refunded().await), (Some(RefundStatus::Succeeded), 1_000));
    // The bank returns the refund days later.
    account.stripe.settle_refund(&first.id, false);
    let first = account.client.refund(&first.id).await.unwrap();
    assert_eq!((first.status, refunded().await), (Some(RefundStatus::Failed), 0));
    assert_eq!(first.failure_reason.as_deref(), Some("lost_or_stolen_card"));
    account.stripe.set_refunds(RefundOutcome::Fails);
    account.new_events();
    account.client.create_refund(&part(&intent.id, None), &key("ref_2")).await.unwrap();
    assert_eq!(refunded().await, 0);
    let events =
        ["refund.created", "charge.refunded", "refund.failed", "refund.updated", "charge.refund.updated"];
    assert_eq!(account.new_events(), events);
    account.stripe.set_refunds(RefundOutcome::Succeeds);
    account.stripe.refund_by_hand(&intent.id, 300);
    assert_eq!((refunded().await, account.stripe.balance()), (300, 2_200));
}

#[tokio::test]
async fn dispute_takes_the_money_and_may_bring_it_back() {
    for is_won in [true, false] {
        let account = Account::start().await;
        let intent = account.pay(2_500, "pay_1").await;
        account.new_events();
        let id = account.stripe.dispute(&intent.id, 2_500);
        let dispute = account.client.dispute(&id).await.unwrap();
        assert_eq!(
            (dispute.status, dispute.amount, dispute.reason.as_str()),
            (DisputeStatus::NeedsResponse, 2_500, "fraudulent")
        );
        assert_eq!(dispute.payment_intent.as_ref().unwrap().id(), intent.id);
        let moved = |dispute: &tollkeeper::stripe::Dispute| -> Vec<_> {
            let moved = dispute.balance_transactions.iter();
            moved
                .map(|moved| (moved.amount, moved.fee, moved.net, moved.reporting_category.clone()))
                .collect()
        };
        assert_eq!(moved(&dispute), [(-2_500, 1_500, -4_000, "dispute".to_owned())]);
        assert_eq!(account.new_events(), ["charge.dispute.created", "charge.dispute.funds_withdrawn"]);
        let charge = account.client.payment_intent(&intent.id).await.unwrap().latest_charge.unwrap();
        assert!(charge.object().unwrap().disputed);
        let error =
            account.client.create_refund(&part(&intent.id, Some(100)), &key("ref_1")).await.unwrap_err();
        assert_eq!(error.refusal().unwrap().code.as_deref(), Some("charge_disputed"));

        account.stripe.close_dispute(&id, is_won);
        let dispute = account.client.dispute(&id).await.unwrap();
        let (status, back, events): (_, _, &[&str]) = if is_won {
            (DisputeStatus::Won, 2_500, &["charge.dispute.funds_reinstated", "charge.dispute.closed"])
        } else {
            (DisputeStatus::Lost, 0, &["charge.dispute.closed"])
        };
        assert_eq!((dispute.status, account.stripe.balance()), (status, back));
        assert_eq!(account.new_events(), events);
        if is_won {
            assert_eq!(moved(&dispute)[1], (2_500, 0, 2_500, "dispute_reversal".to_owned()));
        }
        let listed = account.client.disputes(Some(&intent.id), &Created::default()).await.unwrap();
        assert_eq!(listed.data, [dispute]);
    }
}

#[tokio::test]
async fn inquiry_takes_nothing_until_it_is_a_dispute() {
    let account = Account::start().await;
    let intent = account.pay(2_500, "pay_1").await;
    let id = account.stripe.inquire(&intent.id, 2_500);
    let dispute = account.client.dispute(&id).await.unwrap();
    assert_eq!(
        (dispute.status, dispute.balance_transactions.len()),
        (DisputeStatus::WarningNeedsResponse, 0)
    );
    account.client.create_refund(&part(&intent.id, Some(500)), &key("ref_1")).await.unwrap();
    account.new_events();
    account.stripe.escalate(&id);
    assert_eq!(account.new_events(), ["charge.dispute.updated", "charge.dispute.funds_withdrawn"]);
    let other = account.pay(1_000, "pay_2").await;
    let id = account.stripe.inquire(&other.id, 1_000);
    account.stripe.close_dispute(&id, true);
    let dispute = account.client.dispute(&id).await.unwrap();
    assert_eq!((dispute.status, dispute.balance_transactions.len()), (DisputeStatus::WarningClosed, 0));
}
