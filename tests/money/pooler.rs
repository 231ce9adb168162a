//! Money behind a pooler of PostgreSQL's sessions.

use support::pooler_stories::run_through_a_pooler;
use support::{Database, on_postgres};

#[on_postgres]
fn stories_run_through_a_pooler(_: Database) {
    let stories = ["audit::", "billing::endings::", "billing::jobs::", "payments::top_up_events::"];
    run_through_a_pooler(&stories);
}
