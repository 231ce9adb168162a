//! Requests to a local server with scripted responses.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::{Created, NewPaymentIntent, NewPaymentSession, NewRefund, PaymentIntentStatus};

const INTENT: &str = r#"{"id": "pi_1", "object": "payment_intent", "status": "succeeded", "amount": 2500,
    "amount_received": 2500, "currency": "usd", "livemode": false, "created": 1764000000, "metadata": {"a": "b"},
    "customer": "cus_1", "payment_method": "pm_1", "latest_charge": {"id": "ch_1", "status": "succeeded", "paid": true,
    "amount": 2500, "amount_refunded": 0, "refunded": false, "disputed": false, "currency": "usd", "livemode": false,
    "payment_intent": "pi_1", "receipt_url": null}, "last_payment_error": null, "cancellation_reason": null,
    "next_action": {"new": true}}"#;

/// The server's response to each request.
#[derive(Clone, Copy)]
enum Answer {
    /// Sends these bytes and closes the connection.
    Bytes(&'static str),
    /// Sends this body with status 200.
    Json(&'static str),
    Never,
}

/// A server that records requests.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Some(request) = read(&mut stream).await else { continue };
                kept.lock().unwrap().push(request);
                let bytes = match answer {
                    Answer::Bytes(bytes) => bytes.to_owned(),
                    Answer::Json(body) => {
                        format!(
                            "HTTP/1.1 200 OK\r\nrequest-id: req_1\r\ncontent-length: {}\r\n\r\n{body}",
                            body.len()
                        )
                    }
                    Answer::Never => {
                        tokio::spawn(async move {
                            std::future::pending::<()>().await;
                            drop(stream);
                        });
                        continue;
                    }
                };
                stream.write_all(bytes.as_bytes()).await.ok();
            }
        });
        Self { url, requests }
    }

    fn client(&self) -> Client {
        let mut settings = settings(&self.url).unwrap();
        settings.timeout = Duration::from_millis(500);
        Client::new(settings).unwrap()
    }

    fn request(&self) -> String {
        let requests = self.requests.lock().unwrap();
        let [request] = requests.as_slice() else { panic!("{requests:?}") };
        request.clone()
    }
}

async fn read(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4_096];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
        let text = String::from_utf8(bytes.clone()).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

fn settings(url: &str) -> Result<Settings, String> {
    Settings::new(Secret::new("sk_test_word"), Some(BaseUrl::parse(url).unwrap()))
}

fn key() -> IdempotencyKey {
    IdempotencyKey::new("payment:1").unwrap()
}

#[tokio::test]
async fn post_has_its_key_and_version() {
    let server = Server::start(Answer::Json(INTENT)).await;
    let new = NewPaymentIntent {
        amount: 2_500,
        currency: "USD",
        customer: "cus_1",
        payment_method: "pm_1",
        description: Some("Credit"),
        tax_calculation: None,
        metadata: [("payment_id".to_owned(), "pay_1".to_owned())].into(),
    };
    let intent = server.client().charge_off_session(&new, &key()).await.unwrap();
    assert_eq!((intent.status, intent.amount_received), (PaymentIntentStatus::Succeeded, 2_500));
    let charge = intent.latest_charge.as_ref().unwrap();
    assert_eq!((charge.id(), charge.object().unwrap().amount_refunded), ("ch_1", 0));
    assert_eq!(intent.customer.unwrap().id(), "cus_1");
    let request = server.request();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().map(str::to_lowercase).collect();
    assert_eq!(lines.remove(0), "post /v1/payment_intents http/1.1");
    lines.sort();
    let agent = concat!("user-agent: tollkeeper/", env!("CARGO_PKG_VERSION"));
    let host = format!("host: {}", server.url.strip_prefix("http://").unwrap());
    let expected = [
        "accept: application/json",
        "authorization: bearer sk_test_word",
        &format!("content-length: {}", body.len()),
        "content-type: application/x-www-form-urlencoded",
        &host,
        "idempotency-key: payment:1",
        &format!("stripe-version: {API_VERSION}"),
        agent,
    ];
    assert_eq!(lines, expected);
    let expected = "amount=2500&currency=usd&customer=cus_1&payment_method=pm_1&allowed_payment_method_types[0]=card\
        &confirm=true&off_session=true&description=Credit&metadata[payment_id]=pay_1&expand[0]=latest_charge";
    assert_eq!(body, expected);
}

#[tokio::test]
async fn empty_form_has_its_length() {
    let method = r#"{"id": "pm_1", "type": "card", "livemode": true, "customer": null}"#;
    let server = Server::start(Answer::Json(method)).await;
    let detached = server.client().detach_payment_method("pm_1", &key()).await.unwrap();
    assert_eq!((detached.customer, detached.card, detached.livemode), (None, None, true));
    let request = server.request().to_lowercase();
    assert!(request.starts_with("post /v1/payment_methods/pm_1/detach http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\ncontent-length: 0\r\n"), "{request}");
}

#[tokio::test]
async fn session_of_a_payment_names_its_taxes() {
    let server = Server::start(Answer::Json("{}")).await;
    let mut new = NewPaymentSession {
        customer: "cus_1",
        currency: "EUR",
        amount: 1_000,
        product: "Credit",
        tax_code: None,
        success_url: "https://a.example/paid?session={CHECKOUT_SESSION_ID}",
        cancel_url: "https://a.example/",
        client_reference_id: Some("pay_1"),
        metadata: [("payment_id".to_owned(), "pay_1".to_owned())].into(),
        save_card: true,
        automatic_tax: true,
        tax_id_collection: true,
        invoice: true,
        expires_at: Some(1_764_003_600),
    };
    // The response isn't a session.
    let error = server.client().create_payment_session(&new, &key()).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { status: 200, .. }) && error.is_open(), "{error}");
    let request = server.request();
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let fields: Vec<_> = body.split('&').collect();
    let expected = [
        "mode=payment",
        "customer=cus_1",
        "line_items[0][quantity]=1",
        "line_items[0][price_data][currency]=eur",
        "line_items[0][price_data][unit_amount]=1000",
        "line_items[0][price_data][product_data][name]=Credit",
        "allowed_payment_method_types[0]=card",
        "success_url=https%3A%2F%2Fa.example%2Fpaid%3Fsession%3D%7BCHECKOUT_SESSION_ID%7D",
        "cancel_url=https%3A%2F%2Fa.example%2F",
        "client_reference_id=pay_1",
        "metadata[payment_id]=pay_1",
        "payment_intent_data[metadata][payment_id]=pay_1",
        "payment_intent_data[setup_future_usage]=off_session",
        "automatic_tax[enabled]=true",
        "line_items[0][price_data][tax_behavior]=exclusive",
        "customer_update[address]=auto",
        "tax_id_collection[enabled]=true",
        "customer_update[name]=auto",
        "invoice_creation[enabled]=true",
        "invoice_creation[invoice_data][metadata][payment_id]=pay_1",
        "expires_at=1764003600",
        "expand[0]=payment_intent.latest_charge",
        "expand[1]=payment_intent.payment_method",
        "expand[2]=setup_intent.payment_method",
    ];
    assert_eq!(fields, expected);
    new.metadata.clear();
    (new.save_card, new.automatic_tax, new.tax_id_collection, new.invoice) = (false, false, false, false);
    let server = Server::start(Answer::Json("{}")).await;
    server.client().create_payment_session(&new, &key()).await.unwrap_err();
    let request = server.request();
    for absent in ["tax", "metadata", "invoice", "setup_future_usage", "customer_update"] {
        assert!(!request.contains(absent), "{absent}: {request}");
    }
}

#[tokio::test]
async fn list_is_asked_page_by_page() {
    let body = r#"{"object": "list", "data": [], "has_more": true, "url": "/v1/payment_intents"}"#;
    let server = Server::start(Answer::Json(body)).await;
    let created = Created { from: Some(1), until: Some(9), after: Some("pi_1") };
    let page = server.client().payment_intents(&created).await.unwrap();
    assert!(page.data.is_empty() && page.has_more);
    let target = "GET /v1/payment_intents?limit=100&created[gte]=1&created[lt]=9&starting_after=pi_1\
        &expand[0]=data.latest_charge HTTP/1.1\r\n";
    let request = server.request();
    assert!(request.starts_with(target), "{request}");
    assert!(!request.to_lowercase().contains("idempotency-key"));
}

#[tokio::test]
async fn ids_ask_for_one_object_only() {
    let server = Server::start(Answer::Json(INTENT)).await;
    let client = server.client();
    for id in ["", ".", "..", &"x".repeat(256)] {
        assert!(client.payment_intent(id).await.unwrap_err().is_missing(), "{id}");
    }
    assert!(server.requests.lock().unwrap().is_empty());
    client.payment_intent("../refunds?x=").await.unwrap();
    assert!(server.request().starts_with("GET /v1/payment_intents/..%2Frefunds%3Fx%3D?expand[0]="));
}

#[tokio::test]
async fn answers_that_do_not_come_leave_the_outcome_open() {
    let refund = NewRefund { payment_intent: "pi_1", amount: Some(1), reason: None, metadata: [].into() };
    let cases = [
        (Answer::Bytes(""), Reason::CutOff),
        (Answer::Bytes("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\""), Reason::CutOff),
        (
            Answer::Bytes("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n"),
            Reason::CutOff,
        ),
        (Answer::Never, Reason::Timeout),
        (Answer::Bytes("HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n"), Reason::Status(409)),
        (Answer::Bytes("HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n"), Reason::Status(503)),
    ];
    for (answer, expected) in cases {
        let server = Server::start(answer).await;
        let error = server.client().create_refund(&refund, &key()).await.unwrap_err();
        assert!(
            matches!(error, Error::Unknown { reason, .. } if reason == expected),
            "{expected:?}: {error:?}"
        );
        assert!(error.is_open());
        // No automatic retry.
        assert!(server.request().ends_with("payment_intent=pi_1&amount=1"));
    }
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = Client::new(settings(&format!("http://{unused}")).unwrap()).unwrap();
    let error = client.create_refund(&refund, &key()).await.unwrap_err();
    assert_eq!(error, Error::unknown(Reason::NotConnected));
    assert!(!error.is_open());
}

#[tokio::test]
async fn stripe_says_whether_to_try_again() {
    let answer = "HTTP/1.1 429 Too Many Requests\r\nrequest-id: req_9\r\nstripe-should-retry: true\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(Answer::Bytes(answer)).await;
    let error = server.client().payment_intent("pi_1").await.unwrap_err();
    let expected = Error::Unknown {
        reason: Reason::Status(429),
        should_retry: Some(true),
        request_id: Some("req_9".to_owned()),
    };
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), "Stripe responded with 429 (request req_9)");
}

#[tokio::test]
async fn redirect_is_not_followed_and_large_reply_not_read() {
    let other = Server::start(Answer::Json(INTENT)).await;
    let answer = format!("HTTP/1.1 302 Found\r\nlocation: {}/\r\ncontent-length: 0\r\n\r\n", other.url);
    let server = Server::start(Answer::Bytes(answer.leak())).await;
    let error = server.client().payment_intent("pi_1").await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { status: 302, .. }), "{error:?}");
    assert!(other.requests.lock().unwrap().is_empty());
    let large = format!("{INTENT}{}", " ".repeat(MAX_REPLY_BYTES));
    let server = Server::start(Answer::Json(large.leak())).await;
    let error = server.client().payment_intent("pi_1").await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreadable { status: 200, why, .. } if why.contains("bytes")),
        "{error:?}"
    );
}

#[test]
fn key_goes_over_tls_or_stays_in_private_networks() {
    for url in [
        "https://api.example.com",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://stripe-proxy",
        "http://10.0.0.1",
    ] {
        assert!(settings(url).is_ok(), "{url}");
    }
    for url in ["http://api.stripe.com", "http://192.0.2.1"] {
        assert!(settings(url).unwrap_err().contains("unencrypted"), "{url}");
    }
    let stripe = Settings::new(Secret::new("sk_live_1"), None).unwrap();
    assert_eq!(stripe.api_url.as_str(), "https://api.stripe.com");
}

#[test]
fn secret_does_not_print() {
    for (key, is_live) in
        [("sk_test_word", false), ("sk_live_word", true), ("rk_live_word", true), ("word", false)]
    {
        let url = BaseUrl::parse("http://127.0.0.1:1");
        let client = Client::new(Settings::new(Secret::new(key), url).unwrap()).unwrap();
        assert_eq!(client.is_live(), is_live, "{key}");
        assert!(!format!("{client:?}").contains("word"));
    }
    let url = BaseUrl::parse("http://127.0.0.1:1");
    let error = Client::new(Settings::new(Secret::new("sk_\nword"), url).unwrap()).unwrap_err();
    assert!(!error.contains("word"), "{error}");
}
