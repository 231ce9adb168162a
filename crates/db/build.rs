//! Writes the list of migrations that `src/migrate.rs` includes: the files of `migrations/`, in the order of their
//! numbers.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

#[allow(clippy::print_stdout, reason = "build scripts talk to Cargo on standard output")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=migrations");
    let files = files("migrations/sqlite")?;
    if files != self::files("migrations/postgres")? {
        return Err("the folders of migrations/ don't have the same files".into());
    }
    let steps: Result<String, String> =
        (1..).zip(&files).map(|(version, file)| step(version, file)).collect();
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("steps.rs"), format!("&[{}]", steps?))?)
}

/// Returns the names of the files in a folder, sorted.
fn files(folder: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let names = fs::read_dir(folder)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    names.sort();
    Ok(names)
}

/// Returns the expression of the step with this number, whose file is named `0001_name.sql`.
fn step(version: u32, file: &str) -> Result<String, String> {
    let name = file.strip_prefix(&format!("{version:04}_")).and_then(|rest| rest.strip_suffix(".sql"));
    let name = name.ok_or_else(|| format!("expected migration {version:04}_NAME.sql, found {file}"))?;
    let text = |folder| {
        format!(r#"include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/{folder}/{file}"))"#)
    };
    let (sqlite, postgres) = (text("sqlite"), text("postgres"));
    Ok(format!(
        "Step {{ version: {version}, name: \"V{version}__{name}\", sqlite: {sqlite}, postgres: {postgres} }},\n"
    ))
}
