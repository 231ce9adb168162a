//! POST /service/v1/usage, as it changes the books: exactly once, corrections, late events, CloudEvents.
