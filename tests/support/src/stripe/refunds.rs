//! Refunds.

use serde_json::{Value, json};

use super::params::Params;
use super::problem::Problem;
use super::state::State;

/// The outcome of a refund.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefundOutcome {
    Succeeds,
    /// The refund is pending until the test settles it.
    Pending,
    /// The refund fails immediately.
    Fails,
}

impl State {
    pub fn create_refund(&mut self, params: &Params) -> Result<Value, Problem> {
        let reason = params.word("reason", &["duplicate", "fraudulent", "requested_by_customer"])?;
        let reason = reason.map(str::to_owned);
        let metadata = params.metadata("metadata")?;
        let amount = params.number("amount")?;
        let (intent, charge) = (params.text("payment_intent"), params.text("charge"));
        let (intent, charge) = (intent.map(str::to_owned), charge.map(str::to_owned));
        params.list("expand");
        params.finish()?;
        let charge = match (intent, charge) {
            (Some(intent), _) => {
                let intent = self.find("payment_intent", &intent, Some("payment_intent"))?;
                if intent["status"] != "succeeded" {
                    let why = "This PaymentIntent does not have a successful charge to refund.";
                    return Err(Problem::state("payment_intent_unexpected_state", why));
                }
                intent["latest_charge"].as_str().unwrap().to_owned()
            }
            (None, Some(charge)) => charge,
            (None, None) => {
                let why = "One of the following params should be provided for this request: payment_intent or charge.";
                return Err(Problem::invalid("payment_intent", "parameter_missing", why));
            }
        };
        let id = self.refund(&charge, amount)?;
        self.edit(&id, |refund| {
            refund["reason"] = reason.into();
            refund["metadata"] = metadata;
        });
        Ok(self.get(&id).clone())
    }

    /// Refunds a charge or a part of it, and returns the id of the refund.
    pub fn refund(&mut self, charge: &str, amount: Option<i64>) -> Result<String, Problem> {
        let object = self.find("charge", charge, Some("charge"))?.clone();
        let number = |name: &str| object[name].as_i64().unwrap();
        let left = number("amount") - number("amount_refunded");
        if object["refunded"] == true {
            return Err(Problem::state(
                "charge_already_refunded",
                &format!("Charge {charge} has already been refunded."),
            ));
        }
        // A won dispute counts too, until its money has been reinstated.
        let is_disputed = |dispute: &&Value| {
            let is_open = !["won", "warning_closed"].contains(&dispute["status"].as_str().unwrap());
            let moved = dispute["balance_transactions"].as_array().unwrap().iter();
            let is_back = moved.map(|moved| moved["amount"].as_i64().unwrap()).sum::<i64>() >= 0;
            dispute["charge"] == charge && dispute["is_charge_refundable"] == false && (is_open || !is_back)
        };
        if self.all("dispute").iter().any(is_disputed) {
            return Err(Problem::state("charge_disputed", "The charge has been charged back."));
        }
        let amount = amount.unwrap_or(left);
        if amount < 1 || amount > left {
            let why =
                format!("Refund amount ({amount}) is greater than unrefunded amount on charge ({left})");
            let mut problem = Problem::state("", &why);
            problem.error["param"] = "amount".into();
            return Err(problem);
        }
        let currency = object["currency"].as_str().unwrap().to_owned();
        let mut refund = self.template("refund");
        let id = self.new_id("re");
        refund["id"] = id.clone().into();
        refund["amount"] = amount.into();
        refund["charge"] = charge.into();
        for name in ["currency", "customer", "payment_intent", "payment_method"] {
            refund[name] = object[name].clone();
        }
        let outcome = self.refund_outcome;
        refund["status"] = if outcome == RefundOutcome::Succeeds { "succeeded" } else { "pending" }.into();
        refund["destination_details"] = json!({"card": {"type": "refund"}, "type": "card"});
        refund["balance_transaction"] =
            self.move_balance(("refund", "refund"), -amount, 0, &currency, &id).into();
        self.put(refund);
        self.add_refunded(charge, amount);
        self.emit("refund.created", &id);
        self.emit("charge.refunded", charge);
        if outcome == RefundOutcome::Fails {
            self.settle_refund(&id, false);
        }
        Ok(id)
    }

    fn add_refunded(&mut self, charge: &str, amount: i64) {
        self.edit(charge, |charge| {
            let refunded = charge["amount_refunded"].as_i64().unwrap() + amount;
            charge["amount_refunded"] = refunded.into();
            charge["refunded"] = (charge["amount"] == refunded).into();
        });
    }

    /// Ends a refund. If it fails, possibly after it had succeeded, the money returns to the account.
    pub fn settle_refund(&mut self, id: &str, succeeds: bool) {
        let refund = self.get(id).clone();
        let charge = refund["charge"].as_str().unwrap().to_owned();
        if succeeds {
            assert_eq!(refund["status"], "pending", "{id}");
            self.edit(id, |refund| refund["status"] = "succeeded".into());
            self.emit("refund.updated", id);
            self.emit("charge.refund.updated", id);
            return;
        }
        let (amount, currency) = (refund["amount"].as_i64().unwrap(), refund["currency"].as_str().unwrap());
        let moved = self.move_balance(("refund_failure", "refund_failure"), amount, 0, currency, id);
        self.edit(id, |refund| {
            refund["status"] = "failed".into();
            refund["failure_reason"] = "lost_or_stolen_card".into();
            refund["failure_balance_transaction"] = moved.into();
        });
        self.add_refunded(&charge, -amount);
        self.emit("refund.failed", id);
        self.emit("refund.updated", id);
        self.emit("charge.refund.updated", id);
    }

    pub fn refunds(&self, params: &Params) -> Result<Value, Problem> {
        let (intent, charge) = (params.text("payment_intent"), params.text("charge"));
        self.page("refund", "/v1/refunds", params, |refund| {
            intent.is_none_or(|id| refund["payment_intent"] == id)
                && charge.is_none_or(|id| refund["charge"] == id)
        })
    }
}
