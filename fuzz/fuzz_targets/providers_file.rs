//! Checks that a providers file is accepted as a whole or rejected with reasons. Each reason has a line
//! number and contains no secret.

#![cfg_attr(feature = "engine", no_main)]

use std::path::Path;

use fuzz::fuzz_target;
use tollkeeper::sign_on::reading::read_text;

fuzz_target!(|text: &str| {
    let secret = |name: &str| {
        if name == "SECRET" { Ok("hunter2hunter2".to_owned()) } else { Err(std::env::VarError::NotPresent) }
    };
    match read_text("p.toml", text, Path::new("/nonexistent"), secret) {
        Ok(read) => {
            for provider in &read.providers {
                assert!(!provider.id.is_empty() && !provider.client_id.is_empty());
                assert!((1..=720).contains(&provider.session_hours));
                assert!(!format!("{provider:?}").contains("hunter2hunter2"));
            }
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            assert!(error.problems.iter().all(|problem| problem.starts_with("p.toml:")), "{error}");
        }
    }
});
