//! The API behind a pooler of PostgreSQL's sessions.

use support::pooler_stories::run_through_a_pooler;
use support::{Database, on_postgres};

#[on_postgres]
fn stories_run_through_a_pooler(_: Database) {
    let stories = [
        "api::auth::from_registration",
        "api::api_keys::",
        "api::usage::",
        "races::",
        "service::reservations::",
    ];
    run_through_a_pooler(&stories);
}
