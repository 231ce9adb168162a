//! Two servers in this process with the same database, clock and master key, like two replicas of a
//! deployment.

use http::Method;
use serde_json::Value;
use tollkeeper::accounts::hasher::Hasher;
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::random::Random;
use tollkeeper::web::route::Listener;

use super::http::Call;
use super::world::{World, catch_up};

/// Either of two servers.
#[derive(Clone)]
pub struct Twin {
    pub app: App,
    public: Dispatcher,
    service: Dispatcher,
}

impl Twin {
    /// Returns two servers: the one of the world, and a second one.
    pub async fn both(world: &World) -> [Self; 2] {
        let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
        other.boot().await.unwrap();
        [world.app.clone(), other].map(|app| Self {
            public: app.dispatcher(Listener::Public),
            service: app.dispatcher(Listener::Service),
            app,
        })
    }

    /// Like [`Self::both`], with cheap password hashes. Existing hashes are replaced when they are first
    /// used.
    pub async fn both_with_cheap_hashes(world: &World) -> [Self; 2] {
        let mut twins = Vec::new();
        for _ in 0..2 {
            let random = Random::system();
            let cheap = argon2::Params::new(8, 1, 1, None).unwrap();
            let hasher = Hasher::with_parameters(2, 64, random.clone(), cheap);
            let app =
                App::with_hasher(world.app.config.clone(), world.clock.clone(), random, hasher).unwrap();
            app.boot().await.unwrap();
            twins.push(Self {
                public: app.dispatcher(Listener::Public),
                service: app.dispatcher(Listener::Service),
                app,
            });
        }
        twins.try_into().unwrap_or_else(|_| panic!("two exist"))
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

    /// Builds a POST request to the service listener, with its token.
    pub fn ask(&self, path: &str, body: &Value) -> Call {
        Call::new(&self.service, Method::POST, path).json(body).bearer(self.app.api.service_token.expose())
    }
}

/// Applies the commits of the other server to this one, as a job of a running server does.
pub async fn settle(twin: &Twin) {
    catch_up(&twin.app).await;
}
