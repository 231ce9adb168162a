use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex};
use tokio::sync::watch::Sender;
use tokio::task::JoinHandle;

use super::*;
use crate::app::App;
use crate::clock::Clock;
use crate::config::Config;
use crate::routes::Listener;
use crate::server::testing::{Folder, Lines};

const HEALTH: &[u8] = b"HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

/// A client's side of a connection that is served, of which the system holds this many bytes.
struct Scene {
    client: BufReader<DuplexStream>,
    served: JoinHandle<()>,
    _stop: Sender<bool>,
    _folder: Folder,
}

impl Scene {
    fn new(held_bytes: usize) -> Self {
        let folder = Folder::new();
        let data_dir = folder.0.to_str().unwrap().to_owned();
        let config = Config::load(None, [("TOLLKEEPER_DATA_DIR".to_owned(), data_dir)]).unwrap();
        let app = App::new(config, Clock::System).unwrap();
        let client = Client {
            peer: IpAddr::from([127, 0, 0, 1]),
            entrance: Entrance::new(&app, Listener::Public),
            patience: Patience::new(&app.config.server),
        };
        let (near, far) = duplex(held_bytes);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let served = tokio::spawn(client.serve(far, stopped));
        Self { client: BufReader::new(near), served, _stop: stop, _folder: folder }
    }

    /// The head of the next answer; empty when the connection is closed.
    async fn answer(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && self.client.read_line(&mut head).await.unwrap() > 0 {}
        head
    }
}

#[tokio::test]
async fn a_client_that_takes_no_answer_gets_no_more_of_them_kept() {
    const REQUESTS: usize = 1_000;
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _log = tracing::subscriber::set_default(log);
    // All requests fit into what the system holds, two answers don't.
    let mut scene = Scene::new(300);
    let asked = tokio::time::timeout(Duration::from_secs(2), async {
        for _ in 0..REQUESTS {
            scene.client.write_all(HEALTH).await.unwrap();
        }
    });
    // It isn't read any more, so it can't go on.
    let has_sent_all = asked.await.is_ok();
    let answered = lines.take().matches("/healthz").count();
    assert!((1..=3).contains(&answered), "{answered} requests were answered, all sent: {has_sent_all}");
    // Taken at last, the answers go on.
    for _ in 0..5 {
        assert!(scene.answer().await.starts_with("HTTP/1.1 200 "));
    }
    drop(scene.client);
    scene.served.await.unwrap();
}
