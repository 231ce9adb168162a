//! Descriptions of fields and parameters whose type has none.
//!
//! A row is for a name everywhere, or for `place.name`, where the place is the name of a schema or the
//! operation that takes the field.

use serde_json::{Map, Value};

/// Adds descriptions to parameters, and to properties that have none.
pub fn describe(paths: &mut Map<String, Value>, schemas: &mut Map<String, Value>) {
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let place =
            operation.get("operationId").and_then(Value::as_str).map(ToOwned::to_owned).unwrap_or_default();
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            describe_parameter(&place, parameter);
        }
        for part in ["requestBody", "responses"] {
            if let Some(part) = operation.get_mut(part) {
                describe_properties(&place, part);
            }
        }
    }
    for (name, schema) in schemas {
        describe_properties(name, schema);
    }
}

fn describe_parameter(place: &str, parameter: &mut Value) {
    let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
    let own = parameter.pointer("/schema/description").cloned();
    let found = own.or_else(|| text(place, name).map(Value::from));
    if let (Some(text), Some(parameter)) = (found, parameter.as_object_mut()) {
        parameter.insert("description".into(), text);
    }
}

fn describe_properties(place: &str, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in
                members.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
            {
                if let Some(property) = property.as_object_mut()
                    && !property.contains_key("description")
                    && let Some(text) = text(place, name)
                {
                    property.insert("description".into(), text.into());
                }
            }
            // An example is data, even if its members have names of keywords.
            for (_, member) in members.iter_mut().filter(|(name, _)| !name.starts_with("example")) {
                describe_properties(place, member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| describe_properties(place, item)),
        _ => {}
    }
}

/// Returns the description of a field or a parameter.
fn text(place: &str, name: &str) -> Option<&'static str> {
    let is_meant = |(row, _): &&(&str, &str)| row.split_once('.').is_some_and(|row| row == (place, name));
    let row = FIELDS.iter().find(is_meant).or_else(|| FIELDS.iter().find(|(row, _)| *row == name));
    row.map(|(_, text)| *text)
}

/// The names of fields and parameters with their descriptions: those for one place first, each in alphabetical
/// order.
#[rustfmt::skip]
const FIELDS: &[(&str, &str)] = &[
    ("BalanceAlert.balance", "The posted balance, without what is reserved."),
    ("AutoTopUp.enabled", "`true` if the saved card is charged by itself."),
    ("Budget.currency", "The currency of the organization, as in ISO 4217."),
    ("CreateApiKeyRequest.permissions", "What the key may do: everything, if it is left out."),
    ("EnvelopedError.data", "An empty object."),
    ("EnvelopedError.status_code", "The HTTP status."),
    ("Health.status", "Always `ok`."),
    ("InvoiceItem.description", "What the line is for."),
    ("ListedModel.created", "When the model was created, in Unix seconds."),
    ("list_models.after_id", "The id of the model after which the page begins."),
    ("list_models.aliases", "`true` to list the aliases of each model after it."),
    ("list_models.before_id", "The id of the model before which the page ends."),
    ("list_models.limit", "The most models of the page; all up to 1,000 if it isn't said."),
    ("Movement.id", "The id of the movement."),
    ("Passkey.created_at", "When it was added."),
    ("Passkey.id", "The id of the passkey."),
    ("Passkey.name", "The name that its person has given it."),
    ("Readiness.status", "Always `ready`; otherwise the answer is 503."),
    ("RequestLimits.max_tokens", "The most tokens of one request."),
    ("CreatePaymentRequest.amount", "The amount of credit to buy, unless an invoice is paid."),
    ("CreatePaymentRequest.invoice_id", "The invoice to pay: what is due of it, rounded up to what can be charged."),
    ("Payment.amount", "What is paid."),
    ("Payment.created_at", "When it was begun."),
    ("Payment.id", "The id of the payment."),
    ("PaymentMethodPage.checkout_url", "The page on which the card is entered, good for half a day."),
    ("StripeEvent.id", "The id of the event."),
    ("StripeEvent.type", "What has happened, such as `checkout.session.completed`."),
    ("UpdateAutoTopUpRequest.enabled", "`true` to charge the saved card by itself, also after it was paused."),
    ("UsageParts.search", "Searches that the upstream made."),
    ("create_budget.api_key_id", "The API key; for the scope `api_key`."),
    ("create_budget.project_id", "The project; for the scope `project`."),
    ("create_budget.scope", "What the budget is for."),
    ("CreateWebhookRequest.events", "The events to send; at least one."),
    ("CreatedWebhook.enabled", "Always `true`."),
    ("CreatedWebhook.events", "The events that it takes."),
    ("QueuedTest.delivery_id", "The id of the test's delivery."),
    ("QueuedTest.event_id", "The id of the test: the header `webhook-id`."),
    ("Redelivered.deliveries", "How many deliveries are made again."),
    ("UpdateWebhookRequest.enabled", "`false` to send no more events, `true` to send them again."),
    ("UpdateWebhookRequest.events", "The events to send; at least one."),
    ("Webhook.enabled", "`true` if it gets events."),
    ("Webhook.events", "The events that it takes."),
    ("WebhookDelivery.created_at", "When the event happened."),
    ("WebhookDelivery.event_id", "The id of the event: the header `webhook-id` of every attempt."),
    ("WebhookDelivery.last_attempt_at", "When it was attempted last; null if never."),
    ("confirm_totp.code", "The code that the app shows."),
    ("create_passkey.credential", "The browser's answer, as `PublicKeyCredential.toJSON` writes it."),
    ("create_passkey.name", "A name by which its person tells it from others."),
    ("passkey_login.credential", "The browser's answer, as `PublicKeyCredential.toJSON` writes it."),
    ("reauthenticate.credential", "The browser's answer, as `PublicKeyCredential.toJSON` writes it."),
    ("reauthenticate.password", "The account's password, unless a passkey proves it."),
    ("above_prompt_tokens", "The prompt has more tokens than this; null: any prompt."),
    ("access_token", "The token for calls, as `Authorization: Bearer`."),
    ("action", "What was done, for instance `api_key.created`."),
    ("actor", "Who did it: a person's id, or the id of an API key."),
    ("added_at", "When the person was added."),
    ("audio_completion", "Audio tokens of the answer."),
    ("audio_prompt", "Audio tokens of the prompt."),
    ("cache_write_1h", "Tokens of the prompt that were written to a cache for an hour."),
    ("cache_write_5m", "Tokens of the prompt that were written to a cache for 5 minutes, or for a time that isn't known."),
    ("character", "Characters."),
    ("component", "The name of the component, such as `prompt`, `cached_prompt` or `search`."),
    ("components", "The components that have a price of their own."),
    ("conditions", "When the price holds; null: any."),
    ("effective_at", "When it came into force."),
    ("hours", "The hours of the week in which the call began; null: any."),
    ("image", "Images of the answer."),
    ("image_prompt", "Image tokens of the prompt."),
    ("parts", "What the call used beside these tokens, or as a part of them, by component."),
    ("price", "The price of one token or piece."),
    ("prices", "All prices in force, the one without conditions first."),
    ("reasoning", "Reasoning tokens of the answer."),
    ("request", "Requests; in corrections only."),
    ("require_second_factor", "`true` if only people with a second factor get into the organization; API keys go on. An owner with a fresh session changes it."),
    ("require_sign_on", "`true` if members whom a provider of the organization speaks for get into it only in the console, by a sign-on with it; API keys go on, and owners keep their other ways in. An owner with a fresh session changes it."),
    ("allow_public_projects", "`true` if projects may be `public`: every member of the organization sees them."),
    ("allowed_ips", "The addresses and networks from which the key may be used; null means any."),
    ("api_key_id", "The id of the API key."),
    ("api_keys", "The keys of this page."),
    ("api_keys_count", "How many API keys the project has."),
    ("asked_after_password", "`true` if a login with the password needs a second factor from then on; by default for the first passkey."),
    ("balance", "The balance of the organization."),
    ("below", "The balance below which owners and admins are told by mail; null: never."),
    ("best_of", "How many answers the model computes, of which `n` are returned."),
    ("budget_id", "The id of the budget."),
    ("budgets", "The budgets of this page."),
    ("cached_prompt_tokens", "The part of `prompt_tokens` that came from a prefix cache; null if it isn't known."),
    ("capabilities", "What the model can do."),
    ("ceremony", "What the options came with."),
    ("chat", "Chat models."),
    ("checkout_url", "The page of the payment processor on which it is paid; null once that is over."),
    ("checks", "Each check by its name."),
    ("choices", "How many answers the call asks for (`n`)."),
    ("client_address", "The address of the client that makes the model call."),
    ("code", "A stable word for programs."),
    ("completion", "Tokens of answers."),
    ("completion_tokens", "The tokens of the answer."),
    ("connected_at", "When the account was connected."),
    ("connection_id", "The id of the connection."),
    ("connections", "The connections, oldest first."),
    ("continuous_usage_stats", "`true` for the counts of tokens with every event; for vLLM and SGLang."),
    ("corrects", "The id of the event that this one corrects."),
    ("created_at", "When it was created."),
    ("created_by", "The person who made the key: it acts with their roles."),
    ("credential", "The API key or the access token of the client that makes the model call."),
    ("credits", "The credits of this page."),
    ("currency", "The currency, as in ISO 4217."),
    ("current_password", "The password that the account has."),
    ("current_period", "The current month."),
    ("data", "What the operation returns."),
    ("default_role", "The role of guests whose invitation names none."),
    ("description", "A text of up to 1,000 characters."),
    ("deliveries", "The deliveries of this page."),
    ("delivery_id", "The id of the delivery."),
    ("details", "Each field at fault."),
    ("disputed", "The sum that banks hold because of disputes."),
    ("email", "The e-mail address."),
    ("email_verified", "`true` once the link in the mail to this address was used."),
    ("embeddings", "Embedding models."),
    ("end_date", "The end, which isn't included."),
    ("entries", "The entries of this page."),
    ("error", "The error."),
    ("estimated", "`true` if the counts are estimates."),
    ("estimated_prompt_tokens", "About how many tokens the prompt has; without it the model's most are reserved."),
    ("events", "1 to 1,000 events. Each is accepted or refused by itself."),
    ("expires_at", "When it ends; null means never."),
    ("expiry", "The month in which it ends."),
    ("failure_code", "Why it failed or was given up; null for others."),
    ("failures", "How many charges were declined since the last one that succeeded."),
    ("export_charges.dataset", "The records of the file. `invoice_detail` and `billing_period` need `version=1.4`."),
    ("export_charges.version", "The version of FOCUS that the file follows."),
    ("format", "The format of the answer."),
    ("month", "The calendar month in UTC, such as `2026-01`."),
    ("full_name", "The person's name."),
    ("grace_seconds", "For how many seconds the previous secret stays good; without it, the time that the server is configured with."),
    ("group_by", "What rows are grouped by, separated by commas."),
    ("hard", "`true` if calls that could pass the limit are refused."),
    ("id", "The id."),
    ("include_obfuscation", "OpenAI's padding of events; passed on as it is."),
    ("include_usage", "`true` for a last event with the counts of tokens."),
    ("input", "The text or the texts."),
    ("inputs", "How many texts the call sends, for embeddings."),
    ("invitation_id", "The id of the invitation."),
    ("invitations", "The invitations of this page."),
    ("invited_by", "The person who sent the invitation."),
    ("invoice_id", "The id of the invoice."),
    ("invoices", "The invoices of this page."),
    ("items", "The lines."),
    ("joined_at", "When the person became a member."),
    ("key_id", "The id of the API key."),
    ("kind", "The kind of usage."),
    ("last4", "The last four digits."),
    ("last_login_at", "When the person logged in last; null if never."),
    ("last_used_at", "When the key was used last; null if never."),
    ("last_used_ip", "The address from which the key was used last."),
    ("limit", "The most that may be used in a period, in the currency of the organization."),
    ("limits", "The limits of the model's requests."),
    ("max_completion_tokens", "The most tokens of an answer; wins over `max_tokens`."),
    ("max_concurrent_requests", "The most calls at a time, for one organization."),
    ("max_output_tokens", "The most tokens of the answer."),
    ("max_requests_per_min", "The most calls a minute, for one organization."),
    ("max_tokens", "The most tokens of one request; null means no limit but the model's."),
    ("member_id", "The id of the person."),
    ("members", "The members of this page."),
    ("members_count", "How many members the organization has."),
    ("message", "A sentence for people."),
    ("messages", "The conversation so far."),
    ("mode", "How refusals are answered: `nginx` knows only 401 and 403."),
    ("model", "The id of the model."),
    ("model_id", "The id of the model; it may have slashes."),
    ("models", "The models that the key may use; null means all."),
    ("monthly_cap", "The most that is charged in a calendar month, UTC; null without a limit."),
    ("movements", "The movements of this page."),
    ("n", "How many answers the call asks for."),
    ("name", "The name, of 1 to 100 characters."),
    ("new_email", "The new e-mail address."),
    ("new_password", "The new password."),
    ("new_password_confirmation", "The new password once more."),
    ("next_billing_date", "When the current month is closed."),
    ("object", "The kind of the object, as OpenAI's API names it."),
    ("one_time_code", "A code of the authenticator app, or a recovery code. Needed if the account has a second factor."),
    ("operation", "What the call does."),
    ("organization_id", "The id of the organization."),
    ("organizations", "The organizations of this page."),
    ("owned_by", "Who made the model."),
    ("owner", "The person who made the organization."),
    ("page", "The number of the page, from 1."),
    ("page_size", "How many rows a page has; 20 if it isn't said."),
    ("paid_at", "When it was paid; null until then."),
    ("param", "The path of the field at fault."),
    ("parent", "The model that it was made from; null if there is none."),
    ("passkey", "The passkey."),
    ("passkey_id", "The id of the passkey."),
    ("password", "The password of the account."),
    ("password_confirmation", "The password once more."),
    ("paused_reason", "Why nothing is charged although it is enabled; null while the card is charged."),
    ("payment_date", "When it was paid; null if it wasn't."),
    ("payment_id", "The id of the payment."),
    ("payments", "The payments of this page."),
    ("period", "How long the limit is for, in UTC."),
    ("period_start", "The first day of the month."),
    ("permission", "Always empty."),
    ("permissions", "What the key may do."),
    ("phone", "The phone number with its country, for instance `+441632960961`."),
    ("phone_verified", "Always `false`: phone numbers aren't verified."),
    ("plan", "Always `pay_as_you_go`."),
    ("pricing", "The prices in force; null if the model has none."),
    ("project_id", "The id of the project."),
    ("project_name", "The name of the project."),
    ("projects", "The projects of this page."),
    ("projects_count", "How many projects the organization has."),
    ("prompt", "The text to continue; in counts, the tokens of prompts."),
    ("prompt_tokens", "The tokens of the prompt."),
    ("provider", "The name of the provider."),
    ("providers", "The providers, in the order in which they are shown."),
    ("quantity", "How many units."),
    ("rate_limit", "The most requests a minute; null means no limit."),
    ("refresh_token", "The token for new access tokens."),
    ("refunded", "The sum of its refunds."),
    ("remember_me", "`true` for a session that lives longer."),
    ("request_id", "The id of the request, which the answer had as `x-request-id`; asked for a decision, the call's own id."),
    ("requests", "The number of calls."),
    ("reservation_id", "The id of the reservation."),
    ("reserve", "`false` for a decision that sets no money aside."),
    ("restore_to", "The available balance after a charge."),
    ("restrictions", "The restrictions of the key."),
    ("results", "A result for each event, in the order of the events."),
    ("resumes_at", "When it goes on by itself; null if an owner has to turn it on again."),
    ("role", "The role."),
    ("root", "The id of the model."),
    ("rotation_date", "When the secret was rotated."),
    ("save_card", "`true` to save the card for charges by itself."),
    ("search", "A part of the name, or of an e-mail address or username; case doesn't matter."),
    ("searches", "The most searches that the upstream makes for the answer."),
    ("second", "Seconds of audio or video."),
    ("service_tier", "The tier that the answer names."),
    ("session_id", "The id of the session."),
    ("sessions", "The sessions of this page."),
    ("settings", "The settings."),
    ("since", "The earliest time at which a delivery was queued, which is included."),
    ("state", "The state of the delivery."),
    ("sign_in_url", "Where a browser begins to sign in with it."),
    ("source", "The server that reports the event. Ids are unique within it."),
    ("start_date", "The beginning, which is included."),
    ("status", "The state."),
    ("status_code", "Always 200: the HTTP status once more."),
    ("status_message", "Always `SUCCESS`; the error's code in upper case if there is one."),
    ("stream", "`true` for an answer in events, as it is made."),
    ("stream_options", "Options of the stream."),
    ("subject", "The subject, as the overview links to it."),
    ("subscription", "The plan."),
    ("target", "The id of what was changed."),
    ("temperature", "How freely the model chooses its words, from 0 to 2."),
    ("threshold", "The available balance below which the card is charged."),
    ("thresholds", "The parts of the limit, in percent, at which owners and admins are told by mail."),
    ("time", "When it was."),
    ("token", "The token of the mail's link."),
    ("token_type", "Always `Bearer`."),
    ("tokens", "The number of tokens."),
    ("total", "How many there are on all pages together; in reports, the sum of all rows."),
    ("total_requests", "How many calls the key has made."),
    ("total_tokens", "How many tokens the key has used."),
    ("type", "The kind."),
    ("updated_at", "When it was changed last."),
    ("usage", "The usage."),
    ("url", "Where events are sent: `https`, with port 443 or one from 1024 on, on the public Internet."),
    ("user", "The account."),
    ("user_id", "The id of the person."),
    ("username", "The username."),
    ("verification_email_sent", "`true`: a mail with a link is on its way."),
    ("verified", "Always `true`."),
    ("verified_at", "When the address was verified."),
    ("version", "The version of the server."),
    ("visibility", "Who sees the project."),
    ("webhook_id", "The id of the webhook."),
    ("webhooks", "The webhooks of this page."),
    ("volume_discounts", "The discounts for large volumes."),
];
