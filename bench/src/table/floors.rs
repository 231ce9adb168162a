//! Floors: the minimal work for an operation, done by a bare program.

use serde_json::json;

use super::call::Call;
use super::operations::{events, question};
use super::world::World;

/// The floor of an operation, measured in the same round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Floor {
    /// A bare axum handler that returns a constant.
    Hello,
    /// A bare axum handler that echoes the body of authorize.
    Echo,
    /// A row, read with the bare driver behind axum.
    Point,
    /// A count and twenty rows, read with the bare driver behind axum.
    Page,
    /// A transaction that reads a row and inserts two, with the bare driver behind axum. Only one request at
    /// a time, like the operations compared with it.
    Write,
    /// A transaction that inserts an event and updates its daily row.
    Event,
    /// The same with a hundred events of one key.
    Events,
    /// The argon2 library alone, with the same number of threads.
    Hash,
    /// Half the rate of `Hash`, for requests with two hashes.
    TwoHashes,
}

impl Floor {
    /// All floors, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Hello,
        Self::Echo,
        Self::Point,
        Self::Page,
        Self::Write,
        Self::Event,
        Self::Events,
        Self::Hash,
        Self::TwoHashes,
    ];

    /// Returns the floor's name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Echo => "echo",
            Self::Point => "row",
            Self::Page => "page",
            Self::Write => "write",
            Self::Event => "event",
            Self::Events => "100 events",
            Self::Hash => "argon2",
            Self::TwoHashes => "2 argon2",
        }
    }

    /// Returns the floor's request.
    pub fn call(self, w: &World) -> Result<Call, String> {
        let get = |path| Call::to(w.floors, "GET", path);
        Ok(match self {
            Self::Hello | Self::Hash | Self::TwoHashes => get("/hello"),
            Self::Point => get("/point"),
            Self::Page => get("/page"),
            Self::Echo => Call::to(w.floors, "POST", "/echo").body(&question(w, false)),
            Self::Write => {
                let body = json!({"name": "Another {number}", "description": "What it is for"});
                Call::to(w.floors, "POST", "/write").body(&body)
            }
            Self::Event => Call::to(w.floors, "POST", "/events").body(&events(w, &w.busy_key_id, 1)?),
            Self::Events => Call::to(w.floors, "POST", "/events").body(&events(w, &w.busy_key_id, 100)?),
        })
    }
}
