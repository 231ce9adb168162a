//! Attempts against local receivers. Name resolution and connections are scripted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const NOW: Time = Time::from_unix_ms(1_769_851_800_123);

/// A receiver that answers every request with these bytes and records the requests.
struct Receiver {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"{\"a\":1}") {
                        let mut bytes = [0; 4_096];
                        match stream.read(&mut bytes).await {
                            Ok(0) | Err(_) => return,
                            Ok(read) => request.extend_from_slice(&bytes[..read]),
                        }
                    }
                    kept.lock().unwrap().push(String::from_utf8(request).unwrap());
                    if answer == "never" {
                        std::future::pending::<()>().await;
                    }
                    stream.write_all(answer.as_bytes()).await.ok();
                });
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn send(client: &Client, url: &str) -> Attempt {
    let url = WebhookUrl::parse(url).unwrap();
    let shipment = Shipment {
        url: &url,
        event_id: "event_1",
        unix_seconds: 1_769_851_800,
        signatures: "v1,abc v1,def",
        body: b"{\"a\":1}",
    };
    client.send(&shipment, NOW).await
}

fn private() -> Client {
    Client::new(true, Network::of_machine(), None)
}

#[tokio::test]
async fn request_is_as_standard_webhooks_describe_it() {
    let receiver = Receiver::start("HTTP/1.1 204 No Content\r\n\r\n").await;
    let attempt = send(&private(), &format!("http://127.0.0.1:{}/hooks?a=b", receiver.port)).await;
    assert_eq!(attempt, Attempt { outcome: Outcome::Succeeded, status: Some(204), retry_after_ms: None });
    let requests = receiver.requests();
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().map(str::to_lowercase).collect();
    assert_eq!(lines.remove(0), "post /hooks?a=b http/1.1");
    lines.sort();
    let agent = concat!("user-agent: tollkeeper/", env!("CARGO_PKG_VERSION"));
    let host = format!("host: 127.0.0.1:{}", receiver.port);
    let expected = [
        "connection: close",
        "content-length: 7",
        "content-type: application/json",
        &host,
        agent,
        "webhook-id: event_1",
        "webhook-signature: v1,abc v1,def",
        "webhook-timestamp: 1769851800",
    ];
    assert_eq!(lines, expected);
    assert_eq!(body, "{\"a\":1}");
}

#[tokio::test]
async fn every_status_but_success_is_a_failure() {
    for (answer, outcome, status, retry_after_ms) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", Outcome::Succeeded, 200, None),
        ("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/x\r\n\r\n", Outcome::Refused, 302, None),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", Outcome::Refused, 304, None),
        ("HTTP/1.1 410 Gone\r\n\r\n", Outcome::Refused, 410, None),
        ("HTTP/1.1 429 Too Many Requests\r\nretry-after: 90\r\n\r\n", Outcome::Refused, 429, Some(90_000)),
        (
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: Sat, 31 Jan 2026 09:31:00 GMT\r\n\r\n",
            Outcome::Refused,
            503,
            Some(59_877),
        ),
        ("HTTP/1.1 500 Internal Server Error\r\nretry-after: soon\r\n\r\n", Outcome::Refused, 500, None),
    ] {
        let receiver = Receiver::start(answer).await;
        let attempt = send(&private(), &format!("http://127.0.0.1:{}/", receiver.port)).await;
        assert_eq!(attempt, Attempt { outcome, status: Some(status), retry_after_ms }, "{answer}");
        assert_eq!(receiver.requests().len(), 1, "a redirect isn't followed: {answer}");
    }
}

#[tokio::test]
async fn receivers_that_do_not_answer_fail() {
    let closing = Receiver::start("").await;
    let nonsense = Receiver::start("SSH-2.0-OpenSSH_9.6\r\n").await;
    for receiver in [closing, nonsense] {
        let attempt = send(&private(), &format!("http://127.0.0.1:{}/", receiver.port)).await;
        assert_eq!(attempt, Attempt::without_answer(Outcome::NoAnswer));
    }
    let plain = Receiver::start("HTTP/1.1 200 OK\r\n\r\n").await;
    let client = Client { timeout: Duration::from_millis(200), ..private() };
    let attempt = send(&client, &format!("https://127.0.0.1:{}/", plain.port)).await;
    // The receiver waits for the rest of a request that never comes.
    assert!(matches!(attempt.outcome, Outcome::TlsFailed | Outcome::Timeout), "{attempt:?}");
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let attempt = send(&private(), &format!("http://127.0.0.1:{unused}/")).await;
    assert_eq!(attempt, Attempt::without_answer(Outcome::NotConnected));
}

#[tokio::test]
async fn slow_receiver_times_out() {
    let receiver = Receiver::start("never").await;
    let client = Client { timeout: Duration::from_millis(200), ..private() };
    let attempt = send(&client, &format!("http://127.0.0.1:{}/", receiver.port)).await;
    assert_eq!(attempt, Attempt::without_answer(Outcome::Timeout));
    assert_eq!(receiver.requests().len(), 1);
}

/// A public address of the machine under test.
const OWN: &str = "93.184.216.99";

/// A network that resolves its name to these addresses, lookup by lookup. Connections are recorded and
/// refused.
fn scripted(
    look_ups: &'static [&'static [&'static str]],
) -> (Network, Arc<AtomicUsize>, Arc<Mutex<Vec<SocketAddr>>>) {
    let (count, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counted, noted) = (Arc::clone(&count), Arc::clone(&asked));
    let network = Network {
        resolve: Box::new(move |_, _| {
            let index = counted.fetch_add(1, Ordering::SeqCst).min(look_ups.len() - 1);
            let found = look_ups[index].iter().map(|address| address.parse().unwrap()).collect();
            Box::pin(async move { Ok(found) })
        }),
        connect: Box::new(move |address| {
            noted.lock().unwrap().push(address);
            Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
        }),
        own_addresses: Box::new(|| Ok(vec!["127.0.0.1".parse().unwrap(), OWN.parse().unwrap()])),
    };
    (network, count, asked)
}

#[tokio::test]
async fn one_address_that_is_not_global_is_enough_to_send_nothing() {
    let names: [&'static [&'static [&'static str]]; 15] = [
        &[&["127.0.0.1"]],
        &[&["10.1.2.3"]],
        &[&["169.254.169.254"]],
        &[&["100.64.0.1"]],
        &[&["::1"]],
        &[&["fd00::1"]],
        &[&["fe80::1"]],
        &[&["::ffff:127.0.0.1"]],
        &[&["64:ff9b::7f00:1"]],
        &[&["2002:7f00:1::1"]],
        &[&["93.184.216.34", "192.168.0.1"]],
        &[&["2606:4700::1111", "::1"]],
        // The machine's own public address.
        &[&[OWN]],
        &[&["93.184.216.34", OWN]],
        // An unknown name has the same outcome.
        &[&[]],
    ];
    for name in names {
        let (network, look_ups, asked) = scripted(name);
        let client = Client::new(false, network, None);
        let attempt = send(&client, "https://receiver.example.com/").await;
        assert_eq!(attempt, Attempt::without_answer(Outcome::NotReachable), "{name:?}");
        assert_eq!((look_ups.load(Ordering::SeqCst), asked.lock().unwrap().len()), (1, 0), "{name:?}");
    }
    for url in [
        "https://93.184.216.99/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "http://receiver.example.com/",
        "https://h.example.com:22/",
    ] {
        let (network, look_ups, asked) = scripted(&[&["93.184.216.34"]]);
        let attempt = send(&Client::new(false, network, None), url).await;
        assert_eq!(attempt, Attempt::without_answer(Outcome::NotReachable), "{url}");
        assert_eq!((look_ups.load(Ordering::SeqCst), asked.lock().unwrap().len()), (0, 0), "{url}");
    }
    let (network, _, _) = scripted(&[&[]]);
    let attempt = send(&Client::new(false, network, None), "https://receiver.example.com/").await;
    assert_eq!(attempt, Attempt::without_answer(Outcome::NotReachable));
}

#[tokio::test]
async fn name_that_changes_after_the_check_changes_nothing() {
    // A second lookup would find this machine.
    let (network, look_ups, asked) = scripted(&[&["93.184.216.34"], &["127.0.0.1"]]);
    let client = Client::new(false, network, None);
    let attempt = send(&client, "https://receiver.example.com:8443/").await;
    assert_eq!(attempt, Attempt::without_answer(Outcome::NotConnected));
    assert_eq!(look_ups.load(Ordering::SeqCst), 1);
    assert_eq!(*asked.lock().unwrap(), ["93.184.216.34:8443".parse().unwrap()]);
    // The next attempt resolves the name again and is no longer allowed.
    let attempt = send(&client, "https://receiver.example.com:8443/").await;
    assert_eq!(attempt, Attempt::without_answer(Outcome::NotReachable));
    assert_eq!((look_ups.load(Ordering::SeqCst), asked.lock().unwrap().len()), (2, 1));
}

#[tokio::test]
async fn operator_can_allow_private_receivers() {
    let receiver = Receiver::start("HTTP/1.1 200 OK\r\n\r\n").await;
    let network = Network {
        resolve: Box::new(|host, _| {
            assert_eq!(host, "receiver.internal");
            Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
        }),
        ..Network::of_machine()
    };
    let client = Client::new(true, network, None);
    let attempt = send(&client, &format!("http://receiver.internal:{}/", receiver.port)).await;
    assert_eq!(attempt.outcome, Outcome::Succeeded);
    let host = format!("host: receiver.internal:{}", receiver.port);
    assert!(receiver.requests()[0].to_lowercase().contains(&host), "{:?}", receiver.requests());
}

#[tokio::test]
async fn nothing_is_sent_while_the_own_addresses_are_unknown() {
    let (network, _, asked) = scripted(&[&["93.184.216.34"]]);
    let network =
        Network { own_addresses: Box::new(|| Err(std::io::ErrorKind::PermissionDenied.into())), ..network };
    let attempt = send(&Client::new(false, network, None), "https://receiver.example.com/").await;
    assert_eq!(attempt, Attempt::without_answer(Outcome::NotReachable));
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn machine_knows_its_own_addresses() {
    let own = (Network::of_machine().own_addresses)().unwrap();
    assert!(own.contains(&"127.0.0.1".parse().unwrap()), "{own:?}");
}

#[test]
fn words_of_earlier_versions_are_read() {
    for word in ["name_not_found", "address_not_allowed", "not_reachable"] {
        assert_eq!(word.parse(), Ok(Outcome::NotReachable), "{word}");
    }
    // Earlier versions can read the words that this version writes.
    assert_eq!(Outcome::NotReachable.as_str(), "name_not_found");
    assert_eq!(serde_json::to_value(Outcome::NotReachable).unwrap(), Outcome::NotReachable.word());
}
