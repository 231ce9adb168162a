//! Writes the list of migrations that `src/migrate.rs` includes: the files of `migrations/`, in the order of
//! their numbers. A migration is one file in `both`, or a file of the same name in `sqlite` and in
//! `postgres`.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

#[allow(clippy::print_stdout, reason = "build scripts talk to Cargo on standard output")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=migrations");
    let separate = files("migrations/sqlite")?;
    if separate != files("migrations/postgres")? {
        return Err("the folders sqlite and postgres of migrations/ don't have the same files".into());
    }
    let shared = files("migrations/both")?.into_iter().map(|file| (file, ["both", "both"]));
    let mut files: Vec<_> =
        separate.into_iter().map(|file| (file, ["sqlite", "postgres"])).chain(shared).collect();
    files.sort();
    let steps: Result<String, String> =
        (1..).zip(&files).map(|(version, (file, folders))| step(version, file, *folders)).collect();
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("steps.rs"), format!("&[{}]", steps?))?)
}

/// Returns the names of the files in a folder.
fn files(folder: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let names = fs::read_dir(folder)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    names.sort();
    Ok(names)
}

/// Returns the Rust expression of the step with this number. Its file is named `0001_name.sql`. The folders
/// contain the file for SQLite and the one for PostgreSQL.
fn step(version: u32, file: &str, folders: [&str; 2]) -> Result<String, String> {
    let name = file.strip_prefix(&format!("{version:04}_")).and_then(|rest| rest.strip_suffix(".sql"));
    let name = name.ok_or_else(|| format!("expected migration {version:04}_NAME.sql, found {file}"))?;
    let [sqlite, postgres] = folders.map(|folder| {
        format!(r#"include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/{folder}/{file}"))"#)
    });
    Ok(format!(
        "Step {{ version: {version}, name: \"V{version}__{name}\", sqlite: {sqlite}, postgres: {postgres} }},\n"
    ))
}
