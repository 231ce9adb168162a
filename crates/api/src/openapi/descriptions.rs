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
    ("BalanceAlert.balance", "The posted balance, excluding reserved amounts."),
    ("AutoTopUp.enabled", "`true` if the saved card is charged automatically."),
    ("Budget.currency", "The currency of the organization, as in ISO 4217."),
    ("CreateApiKeyRequest.permissions", "The permissions of the key; all by default."),
    ("EnvelopedError.data", "An empty object."),
    ("EnvelopedError.status_code", "The HTTP status."),
    ("Health.status", "Always `ok`."),
    ("InvoiceItem.description", "A description of the line."),
    ("ListedModel.created", "The Unix time in seconds when the model was created."),
    ("list_models.after_id", "The id of the model after which the page begins."),
    ("list_models.aliases", "`true` to list the aliases of each model after it."),
    ("list_models.before_id", "The id of the model before which the page ends."),
    ("list_models.limit", "The maximum number of models on the page; by default all, up to 1,000."),
    ("Movement.id", "The id of the movement."),
    ("Passkey.created_at", "The time when it was added."),
    ("Passkey.id", "The id of the passkey."),
    ("Passkey.name", "The name that the person has given it."),
    ("Readiness.status", "Always `ready`; otherwise the response is 503."),
    ("RequestLimits.max_tokens", "The maximum number of tokens per request."),
    ("CreatePaymentRequest.amount", "The amount of credit to buy, unless an invoice is paid."),
    ("CreatePaymentRequest.invoice_id", "The invoice to pay: its amount due, rounded up to an amount that can be charged."),
    ("Payment.amount", "The amount to pay."),
    ("Payment.created_at", "The time when the payment was created."),
    ("Payment.id", "The id of the payment."),
    ("PaymentMethodPage.checkout_url", "The page on which the card is entered, valid for half a day."),
    ("StripeEvent.id", "The id of the event."),
    ("StripeEvent.type", "The kind of event, such as `checkout.session.completed`."),
    ("UpdateAutoTopUpRequest.enabled", "`true` to charge the saved card automatically; this also resumes a paused top-up."),
    ("UsageParts.search", "Searches made by the upstream."),
    ("create_budget.api_key_id", "The API key, for the scope `api_key`."),
    ("create_budget.project_id", "The project, for the scope `project`."),
    ("create_budget.scope", "The scope of the budget."),
    ("CreateWebhookRequest.events", "The events to send; at least one."),
    ("CreatedWebhook.enabled", "Always `true`."),
    ("CreatedWebhook.events", "The events that it receives."),
    ("QueuedTest.delivery_id", "The id of the test's delivery."),
    ("QueuedTest.event_id", "The id of the test: the header `webhook-id`."),
    ("Redelivered.deliveries", "The number of deliveries that are made again."),
    ("UpdateWebhookRequest.enabled", "`false` to send no more events, `true` to send them again."),
    ("UpdateWebhookRequest.events", "The events to send; at least one."),
    ("Webhook.enabled", "`true` if it receives events."),
    ("Webhook.events", "The events that it receives."),
    ("WebhookDelivery.created_at", "The time of the event."),
    ("WebhookDelivery.event_id", "The id of the event: the header `webhook-id` of every attempt."),
    ("WebhookDelivery.last_attempt_at", "The time of the last attempt; null if never."),
    ("confirm_totp.code", "The code shown in the app."),
    ("create_passkey.credential", "The browser's response, as written by `PublicKeyCredential.toJSON`."),
    ("create_passkey.name", "A name that helps its person recognize it."),
    ("passkey_login.credential", "The browser's response, as written by `PublicKeyCredential.toJSON`."),
    ("reauthenticate.credential", "The browser's response, as written by `PublicKeyCredential.toJSON`."),
    ("reauthenticate.password", "The account's password, unless a passkey is used."),
    ("above_prompt_tokens", "The price applies to prompts with more tokens than this; null for any prompt."),
    ("access_token", "The token for calls, as `Authorization: Bearer`."),
    ("action", "The action, for example `api_key.created`."),
    ("actor", "The actor: the id of a person or an API key."),
    ("added_at", "The time when the person was added."),
    ("audio_completion", "Audio tokens of the answer."),
    ("audio_prompt", "Audio tokens of the prompt."),
    ("cache_write_1h", "Tokens of the prompt that were written to a cache for an hour."),
    ("cache_write_5m", "Tokens of the prompt that were written to a cache for 5 minutes, or for an unknown time."),
    ("character", "Characters."),
    ("component", "The name of the component, such as `prompt`, `cached_prompt` or `search`."),
    ("components", "The components that have a price of their own."),
    ("conditions", "The conditions of the price; null for none."),
    ("effective_at", "The time from which it applies."),
    ("hours", "The hours of the week in which the call must begin; null for any."),
    ("image", "Images of the answer."),
    ("image_prompt", "Image tokens of the prompt."),
    ("parts", "The usage in addition to these tokens, or as a part of them, by component."),
    ("price", "The price of one token or piece."),
    ("prices", "All current prices, the one without conditions first."),
    ("reasoning", "Reasoning tokens of the answer."),
    ("request", "Requests; only in corrections."),
    ("require_second_factor", "`true` if only people with a second factor have access to the organization; API keys keep working. Only an owner with a fresh session can change this."),
    ("require_sign_on", "`true` if members managed by a provider of the organization have access only in the console, after a sign-on with it; API keys keep working, and owners can use other sign-in methods. Only an owner with a fresh session can change this."),
    ("allow_public_projects", "`true` if projects may be `public`, so that every member of the organization can view them."),
    ("allowed_ips", "The addresses and networks from which the key may be used; null for any."),
    ("api_key_id", "The id of the API key."),
    ("api_keys", "The keys of this page."),
    ("api_keys_count", "The number of API keys of the project."),
    ("asked_after_password", "`true` if a login with the password also requires a second factor from then on; by default for the first passkey."),
    ("balance", "The balance of the organization."),
    ("below", "The balance below which owners and admins are notified by e-mail; null for never."),
    ("best_of", "The number of answers that the model computes, of which `n` are returned."),
    ("budget_id", "The id of the budget."),
    ("budgets", "The budgets of this page."),
    ("cached_prompt_tokens", "The part of `prompt_tokens` that came from a prefix cache; null if unknown."),
    ("capabilities", "The capabilities of the model."),
    ("ceremony", "The value that was returned with the options."),
    ("chat", "Chat models."),
    ("checkout_url", "The page of the payment processor on which it is paid; null after that."),
    ("checks", "Each check by its name."),
    ("choices", "The number of answers that the call asks for (`n`)."),
    ("client_address", "The address of the client that makes the model call."),
    ("code", "A stable code for programs."),
    ("completion", "Tokens of answers."),
    ("completion_tokens", "The tokens of the answer."),
    ("connected_at", "The time when the account was connected."),
    ("connection_id", "The id of the connection."),
    ("connections", "The connections, oldest first."),
    ("continuous_usage_stats", "`true` for the counts of tokens with every event; for vLLM and SGLang."),
    ("corrects", "The id of the event that this one corrects."),
    ("created_at", "The time of its creation."),
    ("created_by", "The person who created the key, which acts with their roles."),
    ("credential", "The API key or the access token of the client that makes the model call."),
    ("credits", "The credits of this page."),
    ("currency", "The currency, as in ISO 4217."),
    ("current_password", "The current password."),
    ("current_period", "The current month."),
    ("data", "The result of the operation."),
    ("default_role", "The role of guests whose invitation names none."),
    ("description", "A text of up to 1,000 characters."),
    ("deliveries", "The deliveries of this page."),
    ("delivery_id", "The id of the delivery."),
    ("details", "The invalid fields."),
    ("disputed", "The sum that banks hold because of disputes."),
    ("email", "The e-mail address."),
    ("email_verified", "`true` once the link in the e-mail to this address was used."),
    ("embeddings", "Embedding models."),
    ("end_date", "The end, exclusive."),
    ("entries", "The entries of this page."),
    ("error", "The error."),
    ("estimated", "`true` if the counts are estimates."),
    ("estimated_prompt_tokens", "The approximate number of tokens of the prompt; without it, the model's maximum is reserved."),
    ("events", "1 to 1,000 events. Each is accepted or rejected on its own."),
    ("expires_at", "The time of its expiry; null for never."),
    ("expiry", "The month of its expiry, as `MM/YY`."),
    ("failure_code", "The reason why it failed or was canceled; null otherwise."),
    ("failures", "The number of declined charges since the last one that succeeded."),
    ("export_charges.dataset", "The records of the file. `invoice_detail` and `billing_period` need `version=1.4`."),
    ("export_charges.version", "The version of FOCUS that the file follows."),
    ("format", "The format of the response."),
    ("month", "The calendar month in UTC, such as `2026-01`."),
    ("full_name", "The person's name."),
    ("grace_seconds", "The number of seconds for which the previous secret stays valid; by default the time in the server's configuration."),
    ("group_by", "The dimensions to group rows by, separated by commas."),
    ("hard", "`true` to reject calls that would exceed the limit."),
    ("id", "The id."),
    ("include_obfuscation", "OpenAI's padding of events; passed on unchanged."),
    ("include_usage", "`true` for a last event with the counts of tokens."),
    ("input", "The text or the texts."),
    ("inputs", "The number of texts that the call sends, for embeddings."),
    ("invitation_id", "The id of the invitation."),
    ("invitations", "The invitations of this page."),
    ("invited_by", "The person who sent the invitation."),
    ("invoice_id", "The id of the invoice."),
    ("invoices", "The invoices of this page."),
    ("items", "The lines."),
    ("joined_at", "The time when the person became a member."),
    ("key_id", "The id of the API key."),
    ("kind", "The kind of usage."),
    ("last4", "The last four digits."),
    ("last_login_at", "The time of the person's last login; null if never."),
    ("last_used_at", "The time when the key was last used; null if never."),
    ("last_used_ip", "The address from which the key was last used."),
    ("limit", "The maximum amount that can be used in a period, in the currency of the organization."),
    ("limits", "The limits of the model's requests."),
    ("max_completion_tokens", "The maximum number of output tokens; takes precedence over `max_tokens`."),
    ("max_concurrent_requests", "The maximum number of concurrent calls per organization."),
    ("max_output_tokens", "The maximum number of output tokens."),
    ("max_requests_per_min", "The maximum number of calls per minute, per organization."),
    ("max_tokens", "The maximum number of tokens per request; null for the model's limit."),
    ("member_id", "The id of the person."),
    ("members", "The members of this page."),
    ("members_count", "The number of members of the organization."),
    ("message", "A sentence for people."),
    ("messages", "The conversation so far."),
    ("mode", "The format of refusals: `nginx` supports only 401 and 403."),
    ("model", "The id of the model."),
    ("model_id", "The id of the model, which may contain slashes."),
    ("models", "The models that the key may use; null for all."),
    ("monthly_cap", "The maximum amount charged per calendar month (UTC); null for no limit."),
    ("movements", "The movements of this page."),
    ("n", "The number of answers to generate."),
    ("name", "The name, of 1 to 100 characters."),
    ("new_email", "The new e-mail address."),
    ("new_password", "The new password."),
    ("new_password_confirmation", "The new password again."),
    ("next_billing_date", "The time when the current month is closed."),
    ("object", "The kind of the object, as OpenAI's API names it."),
    ("one_time_code", "A code of the authenticator app, or a recovery code. Required if the account has a second factor."),
    ("operation", "The operation of the call."),
    ("organization_id", "The id of the organization."),
    ("organizations", "The organizations of this page."),
    ("owned_by", "The owner of the model."),
    ("owner", "The person who created the organization."),
    ("page", "The number of the page, from 1."),
    ("page_size", "The number of rows per page; 20 by default."),
    ("paid_at", "The time of payment; null until then."),
    ("param", "The path of the invalid field."),
    ("parent", "The base model; null for none."),
    ("passkey", "The passkey."),
    ("passkey_id", "The id of the passkey."),
    ("password", "The password of the account."),
    ("password_confirmation", "The password again."),
    ("paused_reason", "The reason why nothing is charged although it is enabled; null while the card is charged."),
    ("payment_date", "The time of payment; null if it isn't paid."),
    ("payment_id", "The id of the payment."),
    ("payments", "The payments of this page."),
    ("period", "The period of the limit, in UTC."),
    ("period_start", "The first day of the month."),
    ("permission", "Always empty."),
    ("permissions", "The permissions of the key."),
    ("phone", "The phone number with its country code, for example `+441632960961`."),
    ("phone_verified", "Always `false`: phone numbers aren't verified."),
    ("plan", "Always `pay_as_you_go`."),
    ("pricing", "The current prices; null if the model has none."),
    ("project_id", "The id of the project."),
    ("project_name", "The name of the project."),
    ("projects", "The projects of this page."),
    ("projects_count", "The number of projects of the organization."),
    ("prompt", "The text to continue; in counts, the tokens of prompts."),
    ("prompt_tokens", "The tokens of the prompt."),
    ("provider", "The name of the provider."),
    ("providers", "The providers, in the order in which they are shown."),
    ("quantity", "The number of units."),
    ("rate_limit", "The maximum number of requests per minute; null for no limit."),
    ("refresh_token", "The token to get new access tokens."),
    ("refunded", "The sum of its refunds."),
    ("remember_me", "`true` for a session that lives longer."),
    ("request_id", "The id of the request, from the response's header `x-request-id`; in a request for a decision, the call's own id."),
    ("requests", "The number of calls."),
    ("reservation_id", "The id of the reservation."),
    ("reserve", "`false` for a decision that reserves no money."),
    ("restore_to", "The available balance after a charge."),
    ("restrictions", "The restrictions of the key."),
    ("results", "A result for each event, in the order of the events."),
    ("resumes_at", "The time when it resumes automatically; null if an owner has to turn it back on."),
    ("role", "The role."),
    ("root", "The id of the model."),
    ("rotation_date", "The time when the secret was rotated."),
    ("save_card", "`true` to save the card for automatic charges."),
    ("search", "A part of the name, or of an e-mail address or username; case-insensitive."),
    ("searches", "The maximum number of searches that the upstream makes for the answer."),
    ("second", "Seconds of audio or video."),
    ("seconds", "The maximum number of seconds of audio or video that the upstream counts."),
    ("service_tier", "The tier in the answer."),
    ("session_id", "The id of the session."),
    ("sessions", "The sessions of this page."),
    ("settings", "The settings."),
    ("since", "The earliest time at which a delivery was queued, inclusive."),
    ("state", "The state of the delivery."),
    ("sign_in_url", "The address at which a browser begins to sign in with it."),
    ("source", "The server that reports the event. Ids are unique within it."),
    ("start_date", "The beginning, inclusive."),
    ("status", "The state."),
    ("status_code", "Always 200, the HTTP status."),
    ("status_message", "Always `SUCCESS`; in errors, the code in upper case."),
    ("stream", "`true` to stream the answer as events."),
    ("stream_options", "Options of the stream."),
    ("subject", "The subject, as the overview links to it."),
    ("subscription", "The plan."),
    ("target", "The id of the changed object."),
    ("temperature", "The randomness of the answer, from 0 to 2."),
    ("threshold", "The available balance below which the card is charged."),
    ("thresholds", "The percentages of the limit at which owners and admins are notified by e-mail."),
    ("time", "The time of the event."),
    ("token", "The token from the link in the e-mail."),
    ("token_type", "Always `Bearer`."),
    ("tokens", "The number of tokens."),
    ("total", "The number of rows on all pages; in reports, the sum of all rows."),
    ("total_requests", "The number of calls made with the key."),
    ("total_tokens", "The number of tokens used with the key."),
    ("type", "The kind."),
    ("updated_at", "The time of the last change."),
    ("usage", "The usage."),
    ("url", "The address that events are sent to: `https`, with port 443 or a port from 1024, on the public Internet."),
    ("user", "The account."),
    ("user_id", "The id of the person."),
    ("username", "The username."),
    ("verification_email_sent", "`true` if an e-mail with a link was sent."),
    ("verified", "Always `true`."),
    ("verified_at", "The time when the address was verified."),
    ("version", "The version of the server."),
    ("visibility", "The visibility of the project."),
    ("webhook_id", "The id of the webhook."),
    ("webhooks", "The webhooks of this page."),
    ("volume_discounts", "The discounts for large volumes."),
];
