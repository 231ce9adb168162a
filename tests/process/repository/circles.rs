//! Circles of files: files of a crate that use each other, directly or through other files. Circles aren't
//! allowed.
//!
//! A file uses another one by a `use` or by a path that begins with `crate`, `self` or `super`. If a file
//! re-exports a name from another file, using the name counts as a use of that other file. A file and the
//! files below it are one subject, so uses between them don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module, as the names on the path from the root of its crate.
type Module = Vec<String>;

/// A name that a file imports.
struct Import {
    path: Vec<String>,
    name: String,
}

/// A file without comments, string literals and tests.
#[derive(Default)]
struct File {
    /// The modules that the file declares in files of their own.
    children: BTreeSet<String>,
    imports: Vec<Import>,
    /// Other paths in the file's code.
    paths: Vec<Vec<String>>,
}

/// Returns the code of a file without comments and without string and character literals.
fn code(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let (mut kept, mut at) = (String::new(), 0);
    while let Some(rest) = characters.get(at..).filter(|rest| !rest.is_empty()) {
        let raw = rest.iter().skip(1).take_while(|character| **character == '#').count();
        at += match rest {
            ['/', '/', ..] => rest.iter().position(|character| *character == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => rest.windows(2).position(|pair| pair == ['*', '/']).unwrap() + 2,
            ['r', ..] if rest.get(raw + 1) == Some(&'"') => {
                let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', raw)).collect();
                let text = &rest[raw + 2..];
                raw + 2 + text.windows(end.len()).position(|part| part == end).unwrap() + end.len()
            }
            ['"', ..] => length(rest, '"'),
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => length(rest, '\''),
            [character, ..] => {
                kept.push(*character);
                1
            }
            [] => 1,
        };
    }
    kept
}

/// Returns the length of a literal that ends with this mark, in characters.
fn length(literal: &[char], mark: char) -> usize {
    let mut at = 1;
    while literal[at] != mark {
        at += if literal[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns code without the items that exist only in tests.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut rest) = (String::new(), code);
    while let Some((before, after)) = rest.split_once(MARK) {
        kept.push_str(before);
        let mut depth = 0;
        let end = after.char_indices().find(|(_, character)| {
            match character {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            depth < 0 || depth == 0 && matches!(character, ';' | ',' | '}')
        });
        rest = end.map_or("", |(at, _)| &after[at + 1..]);
    }
    kept + rest
}

/// Returns the parts of a list, separated by the commas outside of inner braces.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn names(path: &str) -> Vec<String> {
    path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// Adds the names that the tree of a `use` imports.
fn expand(outer: &[String], tree: &str, found: &mut Vec<Import>) {
    if let Some((head, inner)) = tree.split_once('{') {
        let inner = inner.trim_end().strip_suffix('}').unwrap();
        let head = [outer, &names(head)].concat();
        return parts(inner).into_iter().for_each(|part| expand(&head, part, found));
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path = [outer, &names(path)].concat();
    if path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    let name = alias.map_or_else(|| path.last().unwrap().clone(), |alias| alias.trim().to_owned());
    found.push(Import { path, name });
}

/// Returns the words of code, each with the text after it.
fn words(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '$' | ':');
    let starts = code.char_indices().filter(move |(at, character)| {
        is_word(*character) && !code[..*at].chars().next_back().is_some_and(is_word)
    });
    starts.map(move |(at, _)| {
        let rest = &code[at..];
        rest.split_at(rest.find(|character| !is_word(character)).unwrap_or(rest.len()))
    })
}

impl File {
    fn read(path: &Path) -> Self {
        let code = without_tests(&code(&std::fs::read_to_string(path).unwrap()));
        let (mut file, mut end_of_use) = (Self::default(), code.len());
        for (word, rest) in words(&code) {
            match word {
                _ if rest.len() > end_of_use => {}
                "mod" => {
                    let name = rest.trim_start().split_once(';').map_or("", |(name, _)| name);
                    if !name.is_empty()
                        && name.chars().all(|character| character.is_alphanumeric() || character == '_')
                    {
                        file.children.insert(name.to_owned());
                    }
                }
                "use" if rest.starts_with(char::is_whitespace) => {
                    let (tree, after) = rest.split_once(';').unwrap();
                    expand(&[], tree.trim(), &mut file.imports);
                    end_of_use = after.len();
                }
                path if ["crate::", "self::", "super::"].iter().any(|start| path.starts_with(start)) => {
                    file.paths.push(names(path));
                }
                _ => {}
            }
        }
        file
    }

    /// Returns a path from the root of the crate, or `None` if the path leads to another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let outer = path.iter().take_while(|name| *name == "super").count();
                Some([&module[..module.len().checked_sub(outer)?], &path[outer..]].concat())
            }
            first => self.children.contains(first).then(|| [module, path].concat()),
        }
    }
}

/// The files of a crate, by module.
struct Crate(BTreeMap<Module, File>);

impl Crate {
    fn read(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut waiting: Vec<(Module, PathBuf)> = vec![(Module::new(), folder.join("lib.rs"))];
        while let Some((module, path)) = waiting.pop() {
            let file = File::read(&path);
            let below = if module.is_empty() { folder.to_owned() } else { path.with_extension("") };
            waiting.extend(file.children.iter().map(|name| {
                (
                    [module.as_slice(), std::slice::from_ref(name)].concat(),
                    below.join(name).with_extension("rs"),
                )
            }));
            files.insert(module, file);
        }
        Self(files)
    }

    /// Returns the module whose file defines the item, following re-exports.
    fn holder(&self, path: &[String], seen: &mut Vec<Module>) -> Module {
        let length = (0..=path.len()).rfind(|length| self.0.contains_key(&path[..*length])).unwrap();
        let (module, rest) = path.split_at(length);
        let file = &self.0[module];
        for import in rest
            .first()
            .into_iter()
            .flat_map(|name| file.imports.iter().filter(move |found| found.name == *name))
        {
            let Some(target) = file.absolute(module, &import.path) else { continue };
            let target = [target.as_slice(), &rest[1..]].concat();
            if !seen.contains(&target) {
                seen.push(target.clone());
                return self.holder(&target, seen);
            }
        }
        module.to_vec()
    }

    /// Returns the files that each file uses.
    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |(module, file): (&Module, &File)| {
            let paths = file.imports.iter().map(|import| &import.path).chain(&file.paths);
            let targets = paths.filter_map(|path| file.absolute(module, path));
            let targets = targets.map(|path| self.holder(&path, &mut Vec::new()));
            targets.filter(|target| !target.starts_with(module) && !module.starts_with(target)).collect()
        };
        self.0.iter().map(|(module, file)| (module, of((module, file)))).collect()
    }

    /// Returns the files of each circle.
    fn circles(&self) -> BTreeSet<Vec<String>> {
        let arrows = self.arrows();
        let reached = |from: &Module| {
            let (mut found, mut waiting) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = waiting.pop() {
                waiting.extend(arrows[&module].iter().filter(|next| found.insert((*next).clone())).cloned());
            }
            found
        };
        let reached: BTreeMap<_, _> = arrows.keys().map(|module| (*module, reached(module))).collect();
        let in_circles = reached.iter().filter(|(module, found)| found.contains(**module));
        in_circles
            .map(|(module, found)| found.iter().filter(|other| reached[other].contains(*module)))
            .map(|circle| circle.map(|module| module.join("/")).collect())
            .collect()
    }
}

#[test]
fn files_of_a_crate_form_no_circles() {
    let crates = std::fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path());
    let mut found = BTreeSet::new();
    for folder in crates.chain([PathBuf::from(".")]) {
        let name = folder.file_name().map_or("tollkeeper", |name| name.to_str().unwrap());
        let circles = Crate::read(&folder.join("src")).circles();
        found.extend(circles.into_iter().map(|files| format!("{name}: {}", files.join(", "))));
    }
    assert!(found.is_empty(), "break these cycles by moving the items that cause them: {found:#?}");
}
