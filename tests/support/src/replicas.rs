//! Several replicas on one database, each as a process. They share the database and the keys, and on SQLite
//! also the data folder. Clients send each request to another replica.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::process::{Account, Place, Server, Start, Wire};
use super::world::{Folder, PASSWORD, mailed_token_in};

/// The master key and the service token of every replica.
const MASTER_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const SERVICE_TOKEN: &str = "svc_of-all-the-replicas-of-a-test";

/// The starts of all replicas.
pub struct Replicas {
    pub starts: Vec<Start>,
}

impl Replicas {
    /// Configures this many replicas, with their data folders below `folder`.
    pub fn new(count: usize, url: Option<&str>, folder: &Folder) -> Self {
        let starts = (0..count).map(|number| {
            let place = match url {
                None => folder.0.clone(),
                Some(_) => folder.0.join(format!("replica{number}")),
            };
            std::fs::create_dir_all(&place).unwrap();
            Start::new(&place)
                .database(url)
                .set("TOLLKEEPER_MASTER_KEY", MASTER_KEY)
                .set("TOLLKEEPER_SERVICE_TOKEN", SERVICE_TOKEN)
                .set("TOLLKEEPER_LOG__ACCESS", "false")
        });
        Self { starts: starts.collect() }
    }

    /// Changes a setting of all replicas.
    pub fn set(self, name: &str, value: &str) -> Self {
        Self { starts: self.starts.into_iter().map(|start| start.set(name, value)).collect() }
    }

    /// Disables the rate limits by caller and by address, because all requests come from one address here.
    /// Also uses a catalog whose models accept any number of calls, and lets more password hashes wait in the
    /// queue.
    pub fn generous(self, folder: &Folder) -> Self {
        self.set("TOLLKEEPER_CATALOG_FILE", &generous_catalog(folder))
            .set("TOLLKEEPER_LIMITS__ENABLED", "false")
            .set("TOLLKEEPER_PASSWORDS__QUEUE", "1000")
    }

    /// Starts the replicas. The first one starts before the others, because it creates the tables and the
    /// signing key.
    pub fn run(&self) -> Fleet {
        let (first, others) = self.starts.split_first().unwrap();
        let mut servers = vec![first.run()];
        std::thread::scope(|scope| {
            let others: Vec<_> = others.iter().map(|start| scope.spawn(|| start.run())).collect();
            servers.extend(others.into_iter().map(|server| server.join().unwrap()));
        });
        Fleet { servers, turn: AtomicUsize::new(0) }
    }
}

/// Writes a catalog whose models accept any number of calls, and returns its path.
pub fn generous_catalog(folder: &Folder) -> String {
    let catalog = include_str!("../../../catalog/default.toml")
        .replace("max_requests_per_min = 60\n", "max_requests_per_min = 1000000\n")
        .replace("max_concurrent_requests = 5\n", "max_concurrent_requests = 1000000\n");
    let file = folder.0.join("catalog.toml");
    std::fs::write(&file, catalog).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Running replicas.
pub struct Fleet {
    pub servers: Vec<Server>,
    turn: AtomicUsize,
}

impl Fleet {
    /// Returns the next replica in turn.
    pub fn next(&self) -> &Server {
        &self.servers[self.turn.fetch_add(1, Ordering::Relaxed) % self.servers.len()]
    }

    pub fn get(&self, path: &str) -> Wire {
        self.next().get(path)
    }

    pub fn post(&self, path: &str, body: &Value) -> Wire {
        self.next().post(path, body)
    }

    pub fn call(&self, method: &str, path: &str) -> Wire {
        Wire::new(self.next().public, method, path)
    }

    /// Builds a POST request to the service listener, with its token.
    pub fn ask(&self, path: &str, body: &Value) -> Wire {
        self.next().ask(path, body)
    }

    /// Like [`Self::ask`], with another method and without a body.
    pub fn call_service(&self, method: &str, path: &str) -> Wire {
        let server = self.next();
        Wire::new(server.service, method, path).bearer(&server.service_token())
    }

    /// Returns the token in the newest e-mail to this address. Any replica may have sent it.
    pub fn mailed_token(&self, address: &str) -> String {
        let folders: Vec<PathBuf> = self.servers.iter().map(|server| server.data_dir.clone()).collect();
        mailed_token_in(&folders, address)
    }

    /// Registers an account, verifies it and logs in, each at another replica.
    pub fn sign_up(&self, name: &str) -> Account {
        let email = format!("{name}@example.com");
        let body = json!({"email": email, "password": PASSWORD, "username": name});
        self.post("/v1/auth/register", &body).data();
        let token = self.mailed_token(&email);
        self.post("/v1/auth/verify-email", &json!({ "token": token })).data();
        self.next().log_in(name)
    }

    /// Creates an organization, a project and a key, each at another replica.
    pub fn settle(&self, owner: &Account, name: &str) -> Place {
        let post = |path: &str, body: Value| self.post(path, &body).bearer(&owner.access_token).data();
        let organization = text(&post("/v1/organizations", json!({ "name": name })), "id");
        let projects = format!("/v1/organizations/{organization}/projects");
        let project_path = format!("{projects}/{}", text(&post(&projects, json!({"name": "Bot"})), "id"));
        let key = post(&format!("{project_path}/api-keys"), json!({"name": "Prod"}));
        Place { project_path, key_id: text(&key, "id"), key: text(&key, "key") }
    }

    /// Sends SIGTERM to all replicas. Asserts that each ends cleanly.
    pub fn stop(self) {
        for server in &self.servers {
            server.terminate();
        }
        for server in self.servers {
            let ended = server.wait();
            assert_eq!(ended.code, Some(0), "{}", ended.log);
        }
    }
}

impl Place {
    /// Returns the id of the organization.
    pub fn organization(&self) -> &str {
        self.project_path.split('/').nth(3).unwrap()
    }
}

/// Returns a string of a response.
pub fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap_or_else(|| panic!("no {name} in {data}")).to_owned()
}
