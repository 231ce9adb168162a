//! The fields of one object, read by name; everything wrong is collected, nothing stops at the first mistake.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::json::{self, Json};
use kernel::error::{Code, Detail, Error, MAX_DETAILS};
pub use kernel::patch::Patch;
use kernel::spelling::closest;

/// An object that knows how to read itself field by field.
///
/// `read` first asks for every field, then builds the value with `?`: a field that is asked for after a `?` would not be
/// described, and its mistakes would not be reported.
///
/// `S` is the program's state, for fields that are held against the clock or against what is known elsewhere.
pub trait Record<S>: Sized + Send + 'static {
    /// Reads all fields; `None` when one of them was wrong, which is then among the problems.
    fn read(fields: &mut Fields<'_, S>) -> Option<Self>;
}

/// A type that one field can hold.
pub trait Field: Sized {
    /// Reads it; `None` when it was wrong, which is then among the problems.
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self>;
    /// Its JSON schema, with an example.
    fn schema() -> Value;
}

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A JSON body: types are exact, unknown fields are refused.
    Body,
    /// The query string or an HTML form: everything is text, what is unknown is ignored.
    Query,
}

/// A named value.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The field's name.
    pub name: String,
    /// Its value.
    pub value: Json,
    /// Where it stood.
    pub origin: Origin,
}

/// The place of a value: its JSON path and where it came from.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// For instance `restrictions.allowed_ips[2]`.
    pub path: &'a str,
    /// Body or query.
    pub origin: Origin,
}

/// The most unknown fields of an input that are named: finding out what each was meant to be takes time.
pub const MAX_UNKNOWN_FIELDS: usize = 20;

/// Everything wrong with an input, as far as an error can tell it.
#[derive(Debug, Default)]
pub struct Problems {
    details: Vec<Detail>,
    unknown_fields: usize,
}

impl Problems {
    /// Notes one. The caller's `None` follows: `problems.add(…)` is written where a value would be returned.
    pub fn add<T>(&mut self, at: &At<'_>, code: &'static str, message: impl Into<String>) -> Option<T> {
        // One more than an error lists, so that it says that there are more.
        if self.details.len() <= MAX_DETAILS {
            self.details.push(Detail { param: at.path.to_owned(), code, message: message.into() });
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.details.is_empty()
    }

    fn into_details(mut self) -> Vec<Detail> {
        if let Some(more @ 1..) = self.unknown_fields.checked_sub(MAX_UNKNOWN_FIELDS) {
            let message =
                format!("{more} more fields are unknown: only the first {MAX_UNKNOWN_FIELDS} are named.");
            self.add::<()>(&At { path: "body", origin: Origin::Body }, "too_many", message);
        }
        self.details
    }

    /// Notes that something else was due.
    pub fn wrong_type<T>(&mut self, at: &At<'_>, due: &str, found: &Json) -> Option<T> {
        self.add(at, "wrong_type", format!("`{}` must be {due}, not {}.", at.path, found.type_name()))
    }
}

/// One object being read or described.
pub struct Fields<'a, S> {
    state: Option<&'a S>,
    entries: Vec<Entry>,
    prefix: &'a str,
    problems: &'a mut Problems,
    asked_for: Vec<&'static str>,
    /// Only while the fields are being described: a schema costs more than reading the field.
    schema: Option<ObjectSchema>,
}

/// The fields of an object as they were asked for.
#[derive(Debug, Default)]
pub struct ObjectSchema {
    /// Name, schema and whether it must be there.
    pub properties: Vec<(&'static str, Value, bool)>,
}

impl ObjectSchema {
    /// As JSON schema.
    pub fn to_value(&self) -> Value {
        let properties: Map<_, _> =
            self.properties.iter().map(|(name, schema, _)| ((*name).to_owned(), schema.clone())).collect();
        let required: Vec<_> =
            self.properties.iter().filter(|(_, _, required)| *required).map(|(n, _, _)| *n).collect();
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if let (Some(object), false) = (schema.as_object_mut(), required.is_empty()) {
            object.insert("required".into(), json!(required));
        }
        schema
    }
}

impl<'a, S> Fields<'a, S> {
    /// The program's state; `None` while the fields are only being described.
    pub fn state(&self) -> Option<&'a S> {
        self.state
    }

    /// A field that must be there.
    pub fn required<T: Field>(&mut self, name: &'static str) -> Option<T> {
        self.note(name, T::schema, true);
        let path = self.path(name);
        match self.take(name) {
            Some((value, origin)) if value != Json::Null => {
                T::read(value, &At { path: &path, origin }, self.problems)
            }
            found => {
                let at = At { path: &path, origin: Origin::Body };
                match found {
                    None => self.problems.add(&at, "required", format!("`{path}` is required.")),
                    Some(_) => {
                        self.problems.add(&at, "required", format!("`{path}` is required and can't be null."))
                    }
                }
            }
        }
    }

    /// A field that may be absent or null. The outer `None` means that it was wrong.
    #[allow(clippy::option_option, reason = "wrong, absent and present are three things")]
    pub fn optional<T: Field>(&mut self, name: &'static str) -> Option<Option<T>> {
        self.optional_as(name, || nullable(T::schema()))
    }

    #[allow(clippy::option_option, reason = "wrong, absent and present are three things")]
    fn optional_as<T: Field>(
        &mut self,
        name: &'static str,
        schema: impl FnOnce() -> Value,
    ) -> Option<Option<T>> {
        self.note(name, schema, false);
        let path = self.path(name);
        match self.take(name) {
            None | Some((Json::Null, _)) => Some(None),
            Some((value, origin)) => T::read(value, &At { path: &path, origin }, self.problems).map(Some),
        }
    }

    /// A field that may be absent or null, and then has this value.
    pub fn or<T: Field>(&mut self, name: &'static str, default: T) -> Option<T> {
        self.optional(name).map(|value| value.unwrap_or(default))
    }

    /// An object inside this one; absent or null reads like `{}`.
    pub fn object<T: Record<S>>(&mut self, name: &'static str) -> Option<T> {
        self.object_as(name, || nullable(describe::<S, T>().to_value()))
    }

    fn object_as<T: Record<S>>(&mut self, name: &'static str, schema: impl FnOnce() -> Value) -> Option<T> {
        self.note(name, schema, false);
        let path = self.path(name);
        let entries = match self.take(name) {
            None | Some((Json::Null, _)) => Vec::new(),
            Some((Json::Object(members), origin)) => {
                members.into_iter().map(|(name, value)| Entry { name, value, origin }).collect()
            }
            Some((other, origin)) => {
                return self.problems.wrong_type(&At { path: &path, origin }, "an object", &other);
            }
        };
        read_at(self.state, entries, &format!("{path}."), self.problems)
    }

    /// A field of a merge patch that can be empty (RFC 7396): absent leaves it, null empties it.
    pub fn patch<T: Field>(&mut self, name: &'static str) -> Option<Patch<T>> {
        let null = self.is_null(name);
        self.optional(name).map(|value| Patch::of(value, null))
    }

    /// A field of a merge patch that can't be empty: absent leaves it, null is refused.
    #[allow(clippy::option_option, reason = "wrong, absent and present are three things")]
    pub fn change<T: Field>(&mut self, name: &'static str) -> Option<Option<T>> {
        let null = self.is_null(name);
        let value = self.optional_as(name, T::schema);
        if null { self.refuse_null(name) } else { value }
    }

    /// An object of a merge patch that can be emptied as a whole.
    pub fn patch_object<T: Record<S>>(&mut self, name: &'static str) -> Option<Patch<T>> {
        let (absent, null) = (self.is_absent(name), self.is_null(name));
        let value = self.object(name)?;
        Some(Patch::of((!absent && !null).then_some(value), null))
    }

    /// An object of a merge patch that can't be emptied as a whole: absent reads like `{}`, null is refused.
    pub fn change_object<T: Record<S>>(&mut self, name: &'static str) -> Option<T> {
        let null = self.is_null(name);
        let value = self.object_as(name, || describe::<S, T>().to_value());
        if null { self.refuse_null(name) } else { value }
    }

    fn refuse_null<T>(&mut self, name: &str) -> Option<T> {
        self.problem(
            name,
            "required",
            format!("`{}` can't be null: leave it out to keep it.", self.path(name)),
        )
    }

    fn is_null(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name && entry.value == Json::Null)
    }

    fn is_absent(&self, name: &str) -> bool {
        self.entries.iter().all(|entry| entry.name != name)
    }

    /// Notes a problem that concerns several fields.
    pub fn problem<T>(&mut self, name: &str, code: &'static str, message: impl Into<String>) -> Option<T> {
        let path = self.path(name);
        self.problems.add(&At { path: &path, origin: Origin::Body }, code, message)
    }

    fn note(&mut self, name: &'static str, schema: impl FnOnce() -> Value, required: bool) {
        self.asked_for.push(name);
        if let Some(known) = &mut self.schema {
            known.properties.push((name, schema(), required));
        }
    }

    fn path<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.prefix {
            "" => Cow::Borrowed(name),
            prefix => Cow::Owned(format!("{prefix}{name}")),
        }
    }

    fn take(&mut self, name: &str) -> Option<(Json, Origin)> {
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        let entry = self.entries.swap_remove(index);
        Some((entry.value, entry.origin))
    }

    /// Refuses what nobody asked for; a misspelt `restrictions` must not create an unrestricted key.
    fn finish(mut self) {
        let mut left = std::mem::take(&mut self.entries);
        left.retain(|entry| entry.origin == Origin::Body);
        left.sort_by(|a, b| a.name.cmp(&b.name));
        let named = MAX_UNKNOWN_FIELDS.saturating_sub(self.problems.unknown_fields);
        self.problems.unknown_fields += left.len();
        for entry in left.into_iter().take(named) {
            let name = truncated(&entry.name);
            let path = self.path(&name);
            let meant = closest(&entry.name, self.asked_for.iter().copied());
            let message = match meant {
                Some(meant) => format!("There is no field `{path}`; did you mean `{}`?", self.path(meant)),
                None => {
                    format!("There is no field `{path}`; the fields here are: {}.", self.asked_for.join(", "))
                }
            };
            self.problems.add::<()>(&At { path: &path, origin: Origin::Body }, "unknown_field", message);
        }
    }
}

/// Reads a whole input, or says everything that is wrong with it.
pub fn read<S, T: Record<S>>(state: &S, entries: Vec<Entry>) -> Result<T, Error> {
    let mut problems = Problems::default();
    match read_at(Some(state), entries, "", &mut problems) {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(Error::invalid(problems.into_details())),
    }
}

/// One value by itself, where a refusal needs no reason.
pub fn accepted<T: Field>(value: Json) -> Option<T> {
    let mut problems = Problems::default();
    T::read(value, &At { path: "", origin: Origin::Body }, &mut problems).filter(|_| problems.is_empty())
}

/// Which fields a record has.
pub fn describe<S, T: Record<S>>() -> ObjectSchema {
    let mut problems = Problems::default();
    let mut fields = Fields {
        state: None,
        entries: Vec::new(),
        prefix: "",
        problems: &mut problems,
        asked_for: Vec::new(),
        schema: Some(ObjectSchema::default()),
    };
    // Reading nothing asks for every field; what it says is missing doesn't matter here.
    drop(T::read(&mut fields));
    fields.schema.unwrap_or_default()
}

fn read_at<S, T: Record<S>>(
    state: Option<&S>,
    entries: Vec<Entry>,
    prefix: &str,
    problems: &mut Problems,
) -> Option<T> {
    let mut fields = Fields { state, entries, prefix, problems, asked_for: Vec::new(), schema: None };
    let value = T::read(&mut fields);
    fields.finish();
    value
}

/// Reads a body without the program's state: what is held against it isn't checked.
pub fn read_without_state<S, T: Record<S>>(bytes: &[u8]) -> Option<T> {
    let entries = object_entries(bytes, Origin::Body).ok()?;
    let mut problems = Problems::default();
    read_at(None::<&S>, entries, "", &mut problems).filter(|_| problems.is_empty())
}

/// A name from outside, short enough to be repeated in a message.
fn truncated(name: &str) -> String {
    name.chars().take(64).collect()
}

/// The fields of a JSON object. An empty body is an empty object, so that a missing body is told which fields it lacks.
pub fn object_entries(bytes: &[u8], origin: Origin) -> Result<Vec<Entry>, Error> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    match json::parse(bytes)? {
        Json::Object(members) => {
            Ok(members.into_iter().map(|(name, value)| Entry { name, value, origin }).collect())
        }
        other => Err(Error::new(Code::InvalidJson)
            .param("body")
            .message(format!("The body must be a JSON object, not {}.", other.type_name()))),
    }
}

fn nullable(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.clone(), "null"]);
    }
    if let Some(allowed) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        allowed.push(Value::Null);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Text;

    struct Change {
        name: Option<Text<9>>,
        note: Patch<Text<9>>,
        inner: Patch<Inner>,
        fixed: Inner,
    }

    #[derive(PartialEq, Debug)]
    struct Inner(Patch<String>);

    impl Record<()> for Inner {
        fn read(fields: &mut Fields<'_, ()>) -> Option<Self> {
            Some(Self(fields.patch::<Text<9>>("a")?.map(|text| text.0)))
        }
    }

    impl Record<()> for Change {
        fn read(fields: &mut Fields<'_, ()>) -> Option<Self> {
            let (name, note) = (fields.change("name"), fields.patch("note"));
            let (inner, fixed) = (fields.patch_object("inner"), fields.change_object("fixed"));
            Some(Self { name: name?, note: note?, inner: inner?, fixed: fixed? })
        }
    }

    fn read(body: Vec<(&str, Json)>) -> (Option<Change>, Vec<String>) {
        let entries = body
            .into_iter()
            .map(|(name, value)| Entry { name: name.to_owned(), value, origin: Origin::Body })
            .collect();
        let mut problems = Problems::default();
        let change = read_at(None::<&()>, entries, "", &mut problems);
        (
            change,
            problems
                .into_details()
                .into_iter()
                .map(|detail| format!("{} {}", detail.param, detail.code))
                .collect(),
        )
    }

    #[test]
    fn a_merge_patch_tells_absent_from_null() {
        let (change, problems) = read(vec![]);
        let change = change.unwrap();
        assert!(problems.is_empty() && change.name.is_none());
        assert_eq!(change.note.map(|text| text.0).onto(Some("old".to_owned())), Some("old".to_owned()));
        assert_eq!((change.inner, change.fixed), (Patch::Keep, Inner(Patch::Keep)));

        let (change, _) = read(vec![("note", Json::Null), ("inner", Json::Null)]);
        let change = change.unwrap();
        assert_eq!(change.note.map(|text| text.0).onto(Some("old".to_owned())), None);
        assert_eq!(change.inner, Patch::Clear);

        let inner = Json::Object(vec![("a".to_owned(), Json::Null)]);
        let (change, _) = read(vec![("note", Json::Text("new".into())), ("inner", inner)]);
        let change = change.unwrap();
        assert_eq!(change.note.map(|text| text.0).onto(None), Some("new".to_owned()));
        assert_eq!(change.inner, Patch::Set(Inner(Patch::Clear)));
    }

    #[test]
    fn twenty_unknown_fields_are_named_over_all_objects() {
        let names: Vec<String> = (100..140).map(|number| format!("z{number}")).collect();
        let unknown = |count: usize| names.iter().take(count).map(|name| (name.as_str(), Json::Null));
        let (_, problems) = read(unknown(20).collect());
        assert!(problems.len() == 20 && problems.iter().all(|problem| problem.ends_with(" unknown_field")));
        let (_, problems) = read(unknown(21).collect());
        assert_eq!((problems.len(), problems[20].as_str()), (21, "body too_many"));
        let members = unknown(15).map(|(name, value)| (name.to_owned(), value)).collect();
        let (_, problems) = read(unknown(15).chain([("inner", Json::Object(members))]).collect());
        assert_eq!(problems.len(), 21, "{problems:?}");
        let of_inner = problems.iter().filter(|problem| problem.starts_with("inner.")).count();
        assert_eq!((of_inner, problems[20].as_str()), (15, "body too_many"));
    }

    #[test]
    fn what_can_not_be_empty_refuses_null() {
        let (change, problems) = read(vec![("name", Json::Null), ("fixed", Json::Null)]);
        assert!(change.is_none());
        assert_eq!(problems, ["name required", "fixed required"]);
    }
}
