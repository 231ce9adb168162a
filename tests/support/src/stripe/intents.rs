//! Payment intents and charges.

use serde_json::{Value, json};

use super::cards::Outcome;
use super::params::Params;
use super::problem::Problem;
use super::state::State;

/// The minimum amount of a charge, in the minor unit.
const MIN_AMOUNT: i64 = 50;
/// The maximum amount of a charge, in the minor unit: eight digits.
const MAX_AMOUNT: i64 = 99_999_999;

/// Checks a currency and an amount in its minor unit.
pub fn check_amount(currency: &str, amount: i64, param: &str) -> Result<(), Problem> {
    if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Err(Problem::invalid("currency", "", &format!("Invalid currency: {currency}")));
    }
    let step = match currency {
        "bhd" | "jod" | "kwd" | "omr" | "tnd" => 10,
        "isk" | "ugx" => 100,
        _ => 1,
    };
    match amount {
        _ if amount < 1 || amount % step != 0 => {
            Err(Problem::invalid(param, "parameter_invalid_integer", &format!("Invalid amount: {amount}")))
        }
        _ if amount < MIN_AMOUNT => {
            Err(Problem::invalid(param, "amount_too_small", "Amount must be at least 50 cents"))
        }
        _ if amount > MAX_AMOUNT => Err(Problem::invalid(param, "amount_too_large", "Amount is too large")),
        _ => Ok(()),
    }
}

impl State {
    /// Charges a saved card while the customer is away.
    pub fn create_intent(&mut self, params: &Params) -> Result<Value, Problem> {
        let currency = params.required("currency")?.to_lowercase();
        let amount = params
            .number("amount")?
            .ok_or_else(|| Problem::invalid("amount", "parameter_missing", "amount"))?;
        let customer = params.required("customer")?.to_owned();
        let method = params.required("payment_method")?.to_owned();
        let (confirm, off_session) = (params.flag("confirm")?, params.flag("off_session")?);
        let description = params.text("description").map(str::to_owned);
        let metadata = params.metadata("metadata")?;
        let calculation = params.text("hooks[inputs][tax][calculation]").map(str::to_owned);
        let allowed = params.list("allowed_payment_method_types").into_iter().map(Value::from).collect();
        params.list("expand");
        params.finish()?;
        if !confirm || !off_session {
            return Err(Problem::invalid("confirm", "", "this server makes off-session payments only"));
        }
        check_amount(&currency, amount, "amount")?;
        self.customer(&customer, Some("customer"))?;
        let owner = &self.find("payment_method", &method, Some("payment_method"))?["customer"];
        if *owner != *customer {
            let why = "The payment method must belong to the customer of the PaymentIntent.";
            return Err(Problem::invalid("payment_method", "payment_method_unexpected_state", why));
        }
        if let Some(calculation) = &calculation {
            self.calculation(calculation)?;
        }
        let id = self.add_intent(amount, &currency, Some(&customer), metadata);
        self.edit(&id, |intent| {
            if let Some(calculation) = calculation {
                intent["hooks"] = json!({"inputs": {"tax": {"calculation": calculation}}});
            }
            intent["description"] = description.into();
            intent["allowed_payment_method_types"] = Value::Array(allowed);
        });
        self.emit("payment_intent.created", &id);
        self.attempt(&id, &method, self.outcome_of(&method))?;
        Ok(self.get(&id).clone())
    }

    /// Adds a payment intent without an attempt to pay, and returns its id.
    pub fn add_intent(
        &mut self,
        amount: i64,
        currency: &str,
        customer: Option<&str>,
        metadata: Value,
    ) -> String {
        let mut intent = self.template("payment_intent");
        let id = self.new_id("pi");
        intent["id"] = id.clone().into();
        intent["amount"] = amount.into();
        intent["currency"] = currency.into();
        intent["customer"] = customer.into();
        intent["metadata"] = metadata;
        intent["client_secret"] = format!("{id}_secret_fake").into();
        self.put(intent);
        id
    }

    /// Attempts to charge a payment method for a payment intent.
    pub fn attempt(&mut self, intent: &str, method: &str, outcome: Outcome) -> Result<(), Problem> {
        let charge = self.add_charge(intent, method, outcome);
        let refusal = outcome.refusal();
        self.edit(intent, |object| {
            object["latest_charge"] = charge.clone().into();
            object["payment_method"] = if refusal.is_none() { method.into() } else { Value::Null };
            object["last_payment_error"] = Value::Null;
        });
        let Some((code, decline_code, advice_code, message)) = refusal else {
            if outcome == Outcome::Processing {
                self.edit(intent, |object| object["status"] = "processing".into());
                self.emit("charge.pending", &charge);
                self.emit("payment_intent.processing", intent);
            } else {
                self.succeed(intent, &charge);
            }
            return Ok(());
        };
        let mut error = json!({
            "charge": charge,
            "code": code,
            "decline_code": decline_code,
            "doc_url": format!("https://stripe.com/docs/error-codes/{}", code.replace('_', "-")),
            "message": message,
            "payment_method": self.get(method),
            "type": "card_error",
        });
        if let Some(advice) = advice_code {
            error["advice_code"] = advice.into();
        }
        self.edit(intent, |object| {
            object["status"] = "requires_payment_method".into();
            object["last_payment_error"] = error.clone();
        });
        self.emit("charge.failed", &charge);
        self.emit("payment_intent.payment_failed", intent);
        error["payment_intent"] = self.get(intent).clone();
        Err(Problem::card(error))
    }

    /// Adds the charge of an attempt, and returns the id of the charge.
    fn add_charge(&mut self, intent: &str, method: &str, outcome: Outcome) -> String {
        let object = self.get(intent).clone();
        let mut charge = self.template("charge");
        let id = self.new_id("ch");
        charge["id"] = id.clone().into();
        for name in ["amount", "currency", "customer", "description", "metadata"] {
            charge[name] = object[name].clone();
        }
        charge["payment_intent"] = intent.into();
        charge["payment_method"] = method.into();
        let mut card = self.template("charge_card");
        let amount = object["amount"].clone();
        self.cards[method].describe(&mut card);
        card["network"] = self.cards[method].brand.into();
        card["amount_authorized"] = amount;
        charge["payment_method_details"] = json!({"card": card, "type": "card"});
        charge["calculated_statement_descriptor"] = "FAKE".into();
        let mut described = self.template("outcome");
        match outcome.refusal() {
            Some((code, decline_code, advice_code, message)) => {
                charge["status"] = "failed".into();
                charge["captured"] = false.into();
                charge["failure_code"] = code.into();
                charge["failure_message"] = message.into();
                described["advice_code"] = advice_code.into();
                described["network_status"] = "declined_by_network".into();
                described["reason"] = decline_code.into();
                described["type"] = "issuer_declined".into();
            }
            None => {
                charge["status"] = "pending".into();
                described["network_status"] = "approved_by_network".into();
                described["type"] = "authorized".into();
            }
        }
        charge["outcome"] = described;
        self.put(charge);
        id
    }

    /// Marks a charge and its payment as succeeded.
    fn succeed(&mut self, intent: &str, charge: &str) {
        let (amount, currency) = {
            let object = self.get(charge);
            (object["amount"].as_i64().unwrap(), object["currency"].as_str().unwrap().to_owned())
        };
        let fee = amount * 29 / 1000 + 30;
        let moved = self.move_balance(("charge", "charge"), amount, fee, &currency, charge);
        let receipt = format!("{}/receipts/{charge}", self.url);
        self.edit(charge, |object| {
            object["status"] = "succeeded".into();
            object["paid"] = true.into();
            object["amount_captured"] = amount.into();
            object["balance_transaction"] = moved.into();
            object["receipt_url"] = receipt.into();
        });
        self.edit(intent, |object| {
            object["status"] = "succeeded".into();
            object["amount_received"] = object["amount"].clone();
        });
        self.record_tax(intent);
        self.emit("charge.succeeded", charge);
        self.emit("payment_intent.succeeded", intent);
    }

    /// Ends a processing payment.
    pub fn settle(&mut self, intent: &str, succeeds: bool) {
        let object = self.get(intent).clone();
        assert_eq!(object["status"], "processing", "{intent}");
        let charge = object["latest_charge"].as_str().unwrap().to_owned();
        if succeeds {
            self.succeed(intent, &charge);
        } else {
            let error = json!({
                "charge": charge,
                "code": "payment_intent_payment_attempt_failed",
                "message": "The payment failed.",
                "payment_method": self.get(object["payment_method"].as_str().unwrap()),
                "type": "card_error",
            });
            self.edit(&charge, |charge| {
                charge["status"] = "failed".into();
                charge["captured"] = false.into();
                charge["failure_code"] = "payment_intent_payment_attempt_failed".into();
            });
            self.edit(intent, |intent| {
                intent["status"] = "requires_payment_method".into();
                intent["payment_method"] = Value::Null;
                intent["last_payment_error"] = error;
            });
            self.emit("charge.failed", &charge);
            self.emit("payment_intent.payment_failed", intent);
        }
        self.settle_session(intent, succeeds);
    }

    pub fn cancel_intent(&mut self, id: &str, params: &Params) -> Result<Value, Problem> {
        let reasons = ["duplicate", "fraudulent", "requested_by_customer", "abandoned"];
        let reason = params.word("cancellation_reason", &reasons)?.map(str::to_owned);
        params.list("expand");
        params.finish()?;
        let status = self.find("payment_intent", id, None)?["status"].as_str().unwrap().to_owned();
        if ["succeeded", "processing", "canceled"].contains(&status.as_str()) {
            let why = format!("You cannot cancel this PaymentIntent because it has a status of {status}.");
            return Err(Problem::state("payment_intent_unexpected_state", &why));
        }
        let now = self.now();
        self.edit(id, |intent| {
            intent["status"] = "canceled".into();
            intent["canceled_at"] = now.into();
            intent["cancellation_reason"] = reason.into();
        });
        self.emit("payment_intent.canceled", id);
        Ok(self.get(id).clone())
    }

    pub fn intents(&self, params: &Params) -> Result<Value, Problem> {
        let customer = params.text("customer").map(str::to_owned);
        self.page("payment_intent", "/v1/payment_intents", params, |intent| {
            customer.as_ref().is_none_or(|customer| intent["customer"] == **customer)
        })
    }
}
