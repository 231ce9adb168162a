//! Building blocks for all subjects: time, randomness, typed ids, exact money, the table of errors, secrets
//! that don't print, names, addresses and URLs, versions, rate limits, shared bounds and turns, threads with
//! a lower priority, TOML documents, and lines of CSV.
//!
//! This crate does no I/O, except for the files of [`secrets::files`] and [`files`].

pub mod addresses;
pub mod authorities;
pub mod background;
pub mod certificates;
pub mod clock;
pub mod csv;
pub mod currencies;
pub mod document;
pub mod error;
pub mod fair_queue;
pub mod files;
pub mod futures;
pub mod hosts;
pub mod ids;
pub mod io_turns;
pub mod limiter;
pub mod limits;
pub mod money;
pub mod naming;
pub mod networks;
pub mod pace;
pub mod page;
pub mod patch;
pub mod phones;
pub mod places;
pub mod proxies;
pub mod random;
pub mod rates;
pub mod secrets;
pub mod shares;
pub mod shown;
pub mod spelling;
pub mod stopwatch;
pub mod texts;
pub mod turns;
pub mod urls;
pub mod usernames;
pub mod version;
