//! Checkout sessions, and the actions of customers on their pages.

use serde_json::{Value, json};

use super::cards::Card;
use super::intents::check_amount;
use super::params::Params;
use super::problem::Problem;
use super::state::State;
use super::taxes::address;

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;

impl State {
    pub fn create_session(&mut self, params: &Params) -> Result<Value, Problem> {
        let mode = params.word("mode", &["payment", "setup"])?;
        let mode =
            mode.ok_or_else(|| Problem::invalid("mode", "parameter_missing", "You must provide a mode."))?;
        let mut session = self.template("checkout_session");
        session["mode"] = mode.into();
        let customer = params.required("customer")?.to_owned();
        session["customer"] = customer.clone().into();
        for name in ["success_url", "cancel_url"] {
            session[name] = params.required(name)?.into();
            if !session[name].as_str().unwrap().starts_with("http") {
                return Err(Problem::invalid(name, "url_invalid", "Not a valid URL"));
            }
        }
        session["client_reference_id"] = params.text("client_reference_id").into();
        session["metadata"] = params.metadata("metadata")?;
        let allowed: Vec<Value> =
            params.list("allowed_payment_method_types").into_iter().map(Value::from).collect();
        if !allowed.is_empty() {
            session["allowed_payment_method_types"] = Value::Array(allowed);
        }
        let now = self.now();
        let expires_at = params.number("expires_at")?.unwrap_or(now + DAY);
        if !(now + 30 * MINUTE..=now + DAY).contains(&expires_at) {
            let why = "The `expires_at` timestamp must be between 30 minutes and 24 hours from Checkout Session creation.";
            return Err(Problem::invalid("expires_at", "", why));
        }
        session["expires_at"] = expires_at.into();
        session["payment_method_collection"] = "always".into();
        session["billing_address_collection"] =
            params.word("billing_address_collection", &["auto", "required"])?.into();
        let plan = if mode == "payment" {
            Self::plan_payment(params, &mut session)?
        } else {
            Self::plan_setup(params)?
        };
        params.list("expand");
        params.finish()?;
        self.customer(&customer, Some("customer"))?;
        if mode == "payment" {
            self.put_session_tax(&mut session);
        }
        let id = self.new_id("cs_test");
        session["id"] = id.clone().into();
        session["url"] = format!("{}/c/pay/{id}", self.url).into();
        if mode == "setup" {
            let intent = self.add_setup_intent(&customer, plan["metadata"].clone());
            session["payment_status"] = "no_payment_required".into();
            session["setup_intent"] = intent.into();
            session["currency"] = Value::Null;
        }
        self.plans.insert(id.clone(), plan);
        self.put(session);
        Ok(self.get(&id).clone())
    }

    /// Reads the fields of a session in the mode `payment`, and returns the fields of its payment intent.
    fn plan_payment(params: &Params, session: &mut Value) -> Result<Value, Problem> {
        let item = |name: &str| format!("line_items[0][price_data]{name}");
        let currency = params.required(&item("[currency]"))?.to_lowercase();
        let (amount_name, quantity_name) = (item("[unit_amount]"), "line_items[0][quantity]");
        let missing = |name: &str| Problem::invalid(name, "parameter_missing", "Missing required param");
        let amount = params.number(&amount_name)?.ok_or_else(|| missing(&amount_name))?;
        let quantity = params.number(quantity_name)?.ok_or_else(|| missing(quantity_name))?;
        params.required(&item("[product_data][name]"))?;
        params.text(&item("[product_data][description]"));
        params.text(&item("[product_data][tax_code]"));
        let behavior = params.word(&item("[tax_behavior]"), &["exclusive", "inclusive", "unspecified"])?;
        let subtotal = amount * quantity;
        check_amount(&currency, subtotal, &amount_name)?;
        let is_taxed = params.flag("automatic_tax[enabled]")?;
        let address = params.word("customer_update[address]", &["auto", "never"])?;
        let name = params.word("customer_update[name]", &["auto", "never"])?;
        if is_taxed && (address != Some("auto") || behavior.is_none()) {
            let why = "Automatic tax calculation in Checkout requires a valid address on the Customer, or \
                `customer_update[address]` set to 'auto', and a tax behavior.";
            return Err(Problem::invalid("automatic_tax", "customer_tax_location_invalid", why));
        }
        let collects_tax_ids = params.flag("tax_id_collection[enabled]")?;
        if collects_tax_ids && name != Some("auto") {
            let why = "Tax ID collection requires updating business name on the customer: set `customer_update[name]`.";
            return Err(Problem::invalid("tax_id_collection", "", why));
        }
        let makes_invoice = params.flag("invoice_creation[enabled]")?;
        let invoice_metadata = params.metadata("invoice_creation[invoice_data][metadata]")?;
        let usage = params.word("payment_intent_data[setup_future_usage]", &["off_session", "on_session"])?;
        let metadata = params.metadata("payment_intent_data[metadata]")?;
        if is_taxed && behavior != Some("exclusive") {
            return Err(Problem::invalid("automatic_tax", "", "this server adds taxes only"));
        }
        session["currency"] = currency.into();
        session["amount_subtotal"] = subtotal.into();
        let liability = is_taxed.then(|| json!({"type": "self"}));
        let provider = is_taxed.then_some("stripe");
        session["automatic_tax"] =
            json!({"enabled": is_taxed, "liability": liability, "provider": provider, "status": null});
        session["tax_id_collection"] = json!({"enabled": collects_tax_ids, "required": "never"});
        session["invoice_creation"] = json!({"enabled": makes_invoice, "invoice_data": {
            "account_tax_ids": null, "custom_fields": null, "description": null, "footer": null, "issuer": null,
            "metadata": invoice_metadata, "rendering_options": null,
        }});
        Ok(json!({"metadata": metadata, "setup_future_usage": usage}))
    }

    fn plan_setup(params: &Params) -> Result<Value, Problem> {
        let currency = params.text("currency");
        if currency.is_none() && params.list("allowed_payment_method_types").is_empty() {
            return Err(Problem::invalid(
                "currency",
                "parameter_missing",
                "You must specify a currency in setup mode.",
            ));
        }
        Ok(json!({"metadata": params.metadata("setup_intent_data[metadata]")?}))
    }

    fn add_setup_intent(&mut self, customer: &str, metadata: Value) -> String {
        let mut intent = self.template("setup_intent");
        let id = self.new_id("seti");
        intent["id"] = id.clone().into();
        intent["customer"] = customer.into();
        intent["metadata"] = metadata;
        intent["client_secret"] = format!("{id}_secret_fake").into();
        self.put(intent);
        self.emit("setup_intent.created", &id);
        id
    }

    /// Expires the sessions whose time is over.
    pub fn expire_due(&mut self) {
        let now = self.now();
        let is_due =
            |session: &&Value| session["status"] == "open" && session["expires_at"].as_i64().unwrap() <= now;
        let due: Vec<_> =
            self.all("checkout.session").into_iter().filter(is_due).map(|s| s["id"].clone()).collect();
        for id in due {
            self.expire(id.as_str().unwrap());
        }
    }

    fn expire(&mut self, id: &str) {
        self.edit(id, |session| {
            session["status"] = "expired".into();
            session["url"] = Value::Null;
        });
        if let Some(intent) = self.get(id)["payment_intent"].as_str().map(str::to_owned) {
            let now = self.now();
            self.edit(&intent, |intent| {
                intent["status"] = "canceled".into();
                intent["canceled_at"] = now.into();
                intent["cancellation_reason"] = "automatic".into();
            });
            self.emit("payment_intent.canceled", &intent);
        }
        self.emit("checkout.session.expired", id);
    }

    pub fn expire_session(&mut self, id: &str, params: &Params) -> Result<Value, Problem> {
        params.list("expand");
        params.finish()?;
        let status = self.find("checkout.session", id, None)?["status"].clone();
        if status != "open" {
            let why = format!(
                "Only Checkout Sessions with a status in [\"open\"] can be expired. This one is {status}."
            );
            return Err(Problem::state("", &why));
        }
        self.expire(id);
        Ok(self.get(id).clone())
    }

    /// Pays with a card on the page of a session, or saves the card, as the customer.
    ///
    /// # Errors
    /// The session isn't open, or the card was declined. A session stays open after a declined card.
    pub fn visit(&mut self, id: &str, card: &Card) -> Result<(), Problem> {
        self.expire_due();
        let session = self.find("checkout.session", id, None)?.clone();
        if session["status"] != "open" {
            return Err(Problem::state("", "This page is not available any more."));
        }
        let customer = session["customer"].as_str().unwrap().to_owned();
        if session["mode"] == "setup" {
            return self.visit_setup(id, &session, &customer, card);
        }
        let session = self.take_address(session, &customer);
        let plan = self.plans[id].clone();
        let intent = match session["payment_intent"].as_str() {
            Some(intent) => intent.to_owned(),
            None => {
                let (amount, currency) = (&session["amount_total"], session["currency"].as_str().unwrap());
                let amount = amount.as_i64().unwrap();
                let intent = self.add_intent(amount, currency, Some(&customer), plan["metadata"].clone());
                self.edit(&intent, |intent| {
                    intent["setup_future_usage"] = plan["setup_future_usage"].clone();
                });
                self.edit(id, |session| session["payment_intent"] = intent.clone().into());
                self.emit("payment_intent.created", &intent);
                intent
            }
        };
        let is_saved = !plan["setup_future_usage"].is_null() && card.now.refusal().is_none();
        let method = self.add_payment_method(card, is_saved.then_some(&customer));
        self.attempt(&intent, &method, card.now)?;
        let is_paid = self.get(&intent)["status"] == "succeeded";
        let makes_invoice = session["invoice_creation"]["enabled"] == true;
        let invoice = makes_invoice.then(|| self.add_invoice(&session));
        self.edit(id, |session| {
            session["payment_status"] = if is_paid { "paid" } else { "unpaid" }.into();
            session["invoice"] = invoice.into();
        });
        self.complete(id);
        Ok(())
    }

    /// Takes the customer's address if the session computes a tax. Returns the session with its tax, which is
    /// fixed after the first attempt to pay.
    fn take_address(&mut self, session: Value, customer: &str) -> Value {
        if session["automatic_tax"]["enabled"] != true || !session["payment_intent"].is_null() {
            return session;
        }
        if !self.has_address(customer) {
            self.give_address(customer);
        }
        let mut taxed = session;
        self.put_session_tax(&mut taxed);
        self.put(taxed.clone());
        taxed
    }

    pub fn sessions(&self, params: &Params) -> Result<Value, Problem> {
        let intent = params.text("payment_intent").map(str::to_owned);
        self.page("checkout.session", "/v1/checkout/sessions", params, |session| {
            intent.as_ref().is_none_or(|intent| session["payment_intent"] == **intent)
        })
    }

    fn visit_setup(&mut self, id: &str, session: &Value, customer: &str, card: &Card) -> Result<(), Problem> {
        let intent = session["setup_intent"].as_str().unwrap().to_owned();
        if let Some((code, decline_code, _, message)) = card.now.refusal() {
            let error =
                json!({"code": code, "decline_code": decline_code, "message": message, "type": "card_error"});
            self.edit(&intent, |intent| intent["last_setup_error"] = error.clone());
            self.emit("setup_intent.setup_failed", &intent);
            return Err(Problem::card(error));
        }
        let method = self.add_payment_method(card, Some(customer));
        if session["billing_address_collection"] == "required" {
            self.edit(&method, |method| method["billing_details"]["address"] = address());
        }
        self.edit(&intent, |intent| {
            intent["status"] = "succeeded".into();
            intent["last_setup_error"] = Value::Null;
            intent["payment_method"] = method.into();
        });
        self.emit("setup_intent.succeeded", &intent);
        self.complete(id);
        Ok(())
    }

    fn complete(&mut self, id: &str) {
        let mut details = self.template("customer_details");
        let customer = self.get(self.get(id)["customer"].as_str().unwrap()).clone();
        details["email"] = customer["email"].clone();
        details["name"] = customer.get("name").cloned().unwrap_or_default();
        details["address"] = customer.get("address").cloned().unwrap_or_default();
        details["tax_exempt"] = "none".into();
        details["tax_ids"] = json!([]);
        self.edit(id, |session| {
            session["status"] = "complete".into();
            session["url"] = Value::Null;
            session["customer_details"] = details;
        });
        self.emit("checkout.session.completed", id);
    }

    /// Updates the session of a payment that was processing and has now ended.
    pub fn settle_session(&mut self, intent: &str, succeeds: bool) {
        let found =
            self.all("checkout.session").into_iter().find(|session| session["payment_intent"] == intent);
        let Some(id) = found.map(|session| session["id"].as_str().unwrap().to_owned()) else { return };
        if succeeds {
            self.edit(&id, |session| session["payment_status"] = "paid".into());
            self.emit("checkout.session.async_payment_succeeded", &id);
        } else {
            self.emit("checkout.session.async_payment_failed", &id);
        }
    }
}
