//! Disputes.

use serde_json::Value;

use super::params::Params;
use super::problem::Problem;
use super::state::State;

/// The fee for a dispute, in the minor unit.
const FEE: i64 = 1_500;

impl State {
    /// Creates a dispute or an inquiry about an amount of a payment, and returns its id. For a dispute the
    /// bank withdraws the amount immediately.
    pub fn dispute(&mut self, intent: &str, amount: i64, is_inquiry: bool) -> String {
        let charge = self.get(intent)["latest_charge"].as_str().unwrap().to_owned();
        let currency = self.get(&charge)["currency"].as_str().unwrap().to_owned();
        let mut dispute = self.template("dispute");
        let id = self.new_id("du");
        dispute["id"] = id.clone().into();
        dispute["amount"] = amount.into();
        dispute["charge"] = charge.clone().into();
        dispute["payment_intent"] = intent.into();
        dispute["currency"] = currency.into();
        dispute["reason"] = "fraudulent".into();
        dispute["status"] = if is_inquiry { "warning_needs_response" } else { "needs_response" }.into();
        dispute["is_charge_refundable"] = is_inquiry.into();
        dispute["evidence_details"]["due_by"] = (self.now() + 7 * 24 * 3_600).into();
        dispute["evidence_details"]["submission_method"] = "not_submitted".into();
        self.put(dispute);
        self.edit(&charge, |charge| charge["disputed"] = true.into());
        self.emit("charge.dispute.created", &id);
        if !is_inquiry {
            self.move_funds(&id, ("adjustment", "dispute"), -amount, FEE);
            self.emit("charge.dispute.funds_withdrawn", &id);
        }
        id
    }

    /// Turns an inquiry into a dispute, for which the bank withdraws the amount.
    pub fn escalate(&mut self, id: &str) {
        let amount = self.get(id)["amount"].as_i64().unwrap();
        self.edit(id, |dispute| {
            assert_eq!(dispute["status"], "warning_needs_response");
            dispute["status"] = "needs_response".into();
            dispute["is_charge_refundable"] = false.into();
        });
        self.emit("charge.dispute.updated", id);
        self.move_funds(id, ("adjustment", "dispute"), -amount, FEE);
        self.emit("charge.dispute.funds_withdrawn", id);
    }

    /// Withdraws or reinstates an amount. It can be any part of the disputed amount, and any number of times.
    pub fn move_disputed(&mut self, id: &str, amount: i64, currency: &str) {
        let (kind, word) = match amount < 0 {
            true => (("adjustment", "dispute"), "funds_withdrawn"),
            false => (("adjustment", "dispute_reversal"), "funds_reinstated"),
        };
        let moved = self.move_balance(kind, amount, 0, currency, id);
        let moved = self.get(&moved).clone();
        self.edit(id, |dispute| dispute["balance_transactions"].as_array_mut().unwrap().push(moved));
        self.emit(&format!("charge.dispute.{word}"), id);
    }

    /// Ends a dispute without moving money.
    pub fn end_dispute(&mut self, id: &str, status: &str) {
        self.edit(id, |dispute| dispute["status"] = status.into());
        self.emit("charge.dispute.closed", id);
    }

    /// Decides a dispute, as the bank. A won dispute reinstates the amount.
    pub fn close_dispute(&mut self, id: &str, is_won: bool) {
        let dispute = self.get(id).clone();
        let is_inquiry = dispute["status"] == "warning_needs_response";
        let status = match (is_inquiry, is_won) {
            (true, _) => "warning_closed",
            (false, true) => "won",
            (false, false) => "lost",
        };
        self.edit(id, |dispute| dispute["status"] = status.into());
        if is_won && !is_inquiry {
            self.move_funds(id, ("adjustment", "dispute_reversal"), dispute["amount"].as_i64().unwrap(), 0);
            self.emit("charge.dispute.funds_reinstated", id);
        }
        self.emit("charge.dispute.closed", id);
    }

    fn move_funds(&mut self, id: &str, kind: (&str, &str), amount: i64, fee: i64) {
        let currency = self.get(id)["currency"].as_str().unwrap().to_owned();
        let moved = self.move_balance(kind, amount, fee, &currency, id);
        let moved = self.get(&moved).clone();
        self.edit(id, |dispute| dispute["balance_transactions"].as_array_mut().unwrap().push(moved));
    }

    pub fn disputes(&self, params: &Params) -> Result<Value, Problem> {
        let (intent, charge) = (params.text("payment_intent"), params.text("charge"));
        self.page("dispute", "/v1/disputes", params, |dispute| {
            intent.is_none_or(|id| dispute["payment_intent"] == id)
                && charge.is_none_or(|id| dispute["charge"] == id)
        })
    }

    pub fn events(&self, params: &Params) -> Result<Value, Problem> {
        let (kinds, kind) = (params.list("types"), params.text("type"));
        self.page("event", "/v1/events", params, |event| {
            let is_kind = |kind: &str| event["type"] == kind;
            (kinds.is_empty() || kinds.iter().any(|kind| is_kind(kind))) && kind.is_none_or(is_kind)
        })
    }

    /// Returns the sum of all changes to the account's balance.
    pub fn balance(&self) -> i64 {
        self.all("balance_transaction").iter().map(|moved| moved["amount"].as_i64().unwrap()).sum()
    }
}
