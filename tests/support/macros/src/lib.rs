//! Attributes that expand a function into one test for each database.

use proc_macro::{TokenStream, TokenTree};

/// Creates the tests `NAME::sqlite` and `NAME::postgres` from the function `NAME`.
///
/// An `async` function gets a new `World`. The optional argument of the attribute is the configuration of
/// that world: a slice of pairs of environment variables. Any other function gets the `Database`, and creates
/// worlds or processes itself.
#[proc_macro_attribute]
pub fn on_each_database(settings: TokenStream, function: TokenStream) -> TokenStream {
    tests(&settings, function, &["Sqlite", "Postgres"])
}

/// Like [`macro@on_each_database`], for a test that needs SQLite. Creates `NAME::sqlite` only.
#[proc_macro_attribute]
pub fn on_sqlite(settings: TokenStream, function: TokenStream) -> TokenStream {
    tests(&settings, function, &["Sqlite"])
}

/// Like [`macro@on_each_database`], for a test that needs PostgreSQL. Creates `NAME::postgres` only.
#[proc_macro_attribute]
pub fn on_postgres(settings: TokenStream, function: TokenStream) -> TokenStream {
    tests(&settings, function, &["Postgres"])
}

/// Returns the function, followed by a module of the same name with a test for each database.
fn tests(settings: &TokenStream, function: TokenStream, databases: &[&str]) -> TokenStream {
    let Some((name, is_async)) = signature(&function) else {
        return error("this attribute belongs on a function");
    };
    if !is_async && !settings.is_empty() {
        return error("only an async function, which gets a world, takes settings");
    }
    let tests = databases.iter().map(|database| {
        let test_name = database.to_lowercase();
        let body = match (is_async, settings.is_empty()) {
            (true, true) => format!("::support::Database::{database}.run(&[], super::{name});"),
            (true, false) => format!("::support::Database::{database}.run({settings}, super::{name});"),
            (false, _) => format!("super::{name}(::support::Database::{database});"),
        };
        format!("#[test] fn {test_name}() {{ {body} }}")
    });
    let tests: String = tests.collect();
    // The settings may refer to constants of the surrounding file.
    let imports = if settings.is_empty() { "" } else { "#[allow(unused_imports)] use super::*;" };
    let module = format!("mod {name} {{ {imports} {tests} }}");
    let mut tokens = function;
    match module.parse::<TokenStream>() {
        Ok(module) => tokens.extend(module),
        Err(mistake) => return error(&mistake.to_string()),
    }
    tokens
}

/// Returns the name of a function, and whether the function is `async`.
fn signature(function: &TokenStream) -> Option<(String, bool)> {
    let mut is_async = false;
    let mut tokens = function.clone().into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word.to_string() == "async" => is_async = true,
            TokenTree::Ident(word) if word.to_string() == "fn" => {
                return Some((tokens.next()?.to_string(), is_async));
            }
            _ => {}
        }
    }
    None
}

fn error(text: &str) -> TokenStream {
    format!("::core::compile_error!({text:?});").parse().unwrap_or_default()
}
