//! `tollkeeper payment check` reports missing parts of the account at Stripe.

use serde_json::{Value, json};
use tollkeeper::clock::Clock;
use tollkeeper::payments::inbound::EVENT_TYPES;
use tollkeeper::stripe::API_VERSION;

use support::process::{ProcessResult, Start};
use support::stripe::FakeStripe;
use support::world::Folder;

/// An account, and the command that checks it.
struct Look {
    stripe: FakeStripe,
    start: Start,
    _folder: Folder,
}

impl Look {
    async fn new() -> Self {
        let (stripe, folder) = (FakeStripe::start(&Clock::System).await, Folder::new());
        let settings = stripe.settings(&folder.0);
        let set = |start: Start, (name, value): &(&str, String)| start.set(name, value);
        let start = settings.iter().fold(Start::new(&folder.0), set);
        Self { stripe, start, _folder: folder }
    }

    fn run(&self) -> ProcessResult {
        self.start.command(&["payment", "check"])
    }

    fn missing(&self) -> Vec<String> {
        let ended = self.run();
        let lines = ended.stdout.lines().filter_map(|line| line.strip_prefix("Missing: "));
        let missing: Vec<_> = lines.map(str::to_owned).collect();
        assert_eq!(ended.code, Some(if missing.is_empty() { 0 } else { 1 }), "{}{}", ended.stdout, ended.log);
        missing
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missing() {
    let look = Look::new().await;
    let ended = look.run();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    for line in [
        "Account acct_1Fake, test mode",
        "Charges on, payouts on; currency USD",
        "Capabilities: card_payments active, transfers active",
        &format!("Requests by version {API_VERSION} of the API"),
        "Nothing is missing.",
    ] {
        assert!(ended.stdout.lines().any(|it| it == line), "{line}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("Note:") && !ended.stdout.contains("sk_test"), "{}", ended.stdout);
    let ended = look.start.command(&["payment", "check", "--json"]);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&shown["is_live"], &shown["missing"], &shown["webhooks"][0]["events"]),
        (&json!(false), &json!([]), &json!(["*"]))
    );
    assert_eq!(shown["account"]["capabilities"]["card_payments"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_that_the_webhook_does_not_get_is_named() {
    let look = Look::new().await;
    let without: Vec<_> = EVENT_TYPES.into_iter().filter(|kind| !kind.contains("dispute")).collect();
    look.stripe.subscribe(&without);
    let kinds = ["closed", "created", "funds_reinstated", "funds_withdrawn"];
    let expected = kinds.map(|kind| format!("The webhook doesn't receive charge.dispute.{kind}."));
    assert_eq!(look.missing(), expected);
    let id = look.stripe.all("webhook_endpoint")[0]["id"].as_str().unwrap().to_owned();
    look.stripe.edit(&id, |endpoint| endpoint["status"] = json!("disabled"));
    let none = "No enabled webhook has a URL that ends with /v1/billing/stripe/events.";
    assert_eq!(look.missing(), [none]);
    assert!(look.run().stdout.contains(&format!("Note: The webhook {id} is disabled.")));
    // The webhook belongs to another service.
    look.stripe.edit(&id, |endpoint| {
        endpoint["status"] = json!("enabled");
        endpoint["url"] = json!("https://shop.example.com/hooks");
    });
    assert_eq!(look.missing(), [none]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_account_and_the_key_may_not_do_is_named() {
    let look = Look::new().await;
    look.stripe.set_capability("card_payments", "pending");
    assert_eq!(
        look.missing(),
        [
            "The account can't make charges: see Stripe's dashboard for the missing information.",
            "The capability card_payments is pending: no card can be charged."
        ]
    );
    look.stripe.set_capability("card_payments", "active");
    look.stripe.forbid(&["/v1/disputes", "/v1/events", "/v1/account", "/v1/webhook_endpoints"]);
    assert_eq!(
        look.missing(),
        [
            "The secret key lacks the permission to read Disputes.",
            "The secret key lacks the permission to read Events."
        ]
    );
    let text = look.run().stdout;
    assert!(text.contains("Note: The secret key lacks the permission to read Webhook Endpoints."), "{text}");
    look.stripe.forbid(&[]);
    let id = look.stripe.all("webhook_endpoint")[0]["id"].as_str().unwrap().to_owned();
    look.stripe.edit(&id, |endpoint| endpoint["api_version"] = json!("2024-06-20"));
    assert_eq!(look.missing(), [] as [String; 0]);
    assert!(look.run().stdout.contains("receives events in version 2024-06-20 of Stripe's API"));
    // The command changed nothing at Stripe.
    assert!(look.stripe.exchanges().iter().all(|exchange| exchange.request.method == "GET"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_payments_there_is_nothing_to_check() {
    let folder = Folder::new();
    let ended = Start::new(&folder.0).command(&["payment", "check"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("payments are off"), "{}", ended.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_warns_of_events_that_the_webhook_does_not_get() {
    let look = Look::new().await;
    let without: Vec<_> = EVENT_TYPES.into_iter().filter(|kind| *kind != "refund.failed").collect();
    look.stripe.subscribe(&without);
    let server = look.start.run();
    server.wait_for_log("Stripe's webhook doesn't receive all required events");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("doesn't receive all required events")).unwrap();
    assert!(line.contains("WARN") && line.contains("refund.failed"), "{line}");
    assert!(server.stop().code == Some(0));
    // The audit reports it too.
    let ended = look.start.command(&["audit"]);
    let told = "payment_at_processor  refund.failed: expected refund.failed to be sent to the webhook, found it isn't enabled for";
    assert!(ended.code == Some(1) && ended.stdout.contains(told), "{}{}", ended.stdout, ended.log);
}
