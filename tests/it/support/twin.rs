//! Two servers in process on one database, one clock and one master key: what a customer runs as two replicas.

use http::Method;
use serde_json::Value;
use tollkeeper::app::App;
use tollkeeper::live::feed;
use tollkeeper::routes::Listener;
use tollkeeper::server::Entrance;

use super::http::Call;
use super::world::World;

/// One of them.
#[derive(Clone)]
pub struct Twin {
    pub app: App,
    public: Entrance,
}

impl Twin {
    /// The world's own server, and another one beside it.
    pub async fn both(world: &World) -> [Self; 2] {
        let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
        other.boot().await.unwrap();
        [world.app.clone(), other].map(|app| Self { public: Entrance::new(&app, Listener::Public), app })
    }

    pub fn get(&self, path: &str) -> Call {
        Call::new(&self.public, Method::GET, path)
    }

    pub fn call(&self, method: Method, path: &str) -> Call {
        Call::new(&self.public, method, path)
    }

    pub fn post(&self, path: &str, body: &Value) -> Call {
        Call::new(&self.public, Method::POST, path).json(body)
    }
}

/// Brings what the other server has committed to this one as well, as its job does.
pub async fn settle(twin: &Twin) {
    feed::catch_up(&twin.app).await.unwrap();
}
