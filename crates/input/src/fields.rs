//! The fields of an object, read by name. Reading doesn't stop at the first problem, but collects all of
//! them.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::json::{self, Json, Members};
use super::schema::{ObjectSchema, Property};
use kernel::error::{Code, Detail, Error, MAX_DETAILS};
pub use kernel::patch::Patch;
use kernel::spelling::closest;

/// An object that is read field by field.
///
/// Declare a record with [`record!`](macro@crate::record). A manual implementation must read all fields
/// before it uses `?`. Otherwise later fields aren't described, and their problems aren't reported.
///
/// `S` is the program's state, for fields that are checked with the clock or other data.
pub trait Record<S>: Sized + Send + 'static {
    /// Reads all fields. Returns `None` if one of them is invalid, and adds its problems.
    fn read(fields: &mut Fields<'_, S>) -> Option<Self>;
}

/// The type of a field.
pub trait Field: Sized {
    /// Reads the value. Returns `None` if it is invalid, and adds the problem.
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self>;
    /// Returns the JSON schema, with an example.
    fn schema() -> Value;
}

/// The source of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A JSON body. Types must match exactly, and unknown fields are refused.
    Body,
    /// The query string or an HTML form. Every value is text, and unknown fields are ignored.
    Query,
}

/// The values that were sent. If the query and the body have the same name, the value of the body is used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sent<'a> {
    pub query: Members<'a>,
    pub body: Members<'a>,
}

impl<'a> From<Members<'a>> for Sent<'a> {
    /// Creates the values from the members of a body.
    fn from(body: Members<'a>) -> Self {
        Self { query: Vec::new(), body }
    }
}

/// The location of a value: its JSON path and its source.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The JSON path, for instance `restrictions.allowed_ips[2]`.
    pub path: &'a str,
    pub origin: Origin,
}

/// Maximum number of unknown fields that are reported by name. It is limited because finding the closest
/// known name takes time.
pub const MAX_UNKNOWN_FIELDS: usize = 20;

/// The problems of an input, up to the maximum number that an error can list.
#[derive(Debug, Default)]
pub struct Problems {
    details: Vec<Detail>,
    unknown_fields: usize,
}

impl Problems {
    /// Adds a problem, and returns `None`, so that a reader can return `problems.add(…)`.
    pub fn add<T>(&mut self, at: &Location<'_>, code: &'static str, message: impl Into<String>) -> Option<T> {
        // The list has one entry more than an error shows, so that the error can report that its list is
        // incomplete.
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
                format!("{more} more fields are unknown; only the first {MAX_UNKNOWN_FIELDS} are listed.");
            self.add::<()>(&Location { path: "body", origin: Origin::Body }, "too_many", message);
        }
        self.details
    }

    /// Adds a problem about a value of the wrong type.
    pub fn wrong_type<T>(&mut self, at: &Location<'_>, expected: &str, found: &Json<'_>) -> Option<T> {
        self.add(at, "wrong_type", format!("`{}` must be {expected}, not {}.", at.path, found.type_name()))
    }
}

/// An object that is being read or described.
pub struct Fields<'a, S> {
    state: Option<&'a S>,
    sent: Sent<'a>,
    prefix: &'a str,
    problems: &'a mut Problems,
    /// The names of the fields, which are collected only for a message about unknown fields.
    names: Option<Vec<&'static str>>,
    /// The description of the next field.
    description: &'static str,
    /// The schema, which is set only while the fields are described, because a schema costs more than reading
    /// the field.
    schema: Option<ObjectSchema>,
}

impl<'a, S> Fields<'a, S> {
    /// Returns the program's state; `None` while the fields are only being described.
    pub fn state(&self) -> Option<&'a S> {
        self.state
    }

    /// Sets the description of the next field.
    pub fn described(&mut self, description: &'static str) -> &mut Self {
        self.description = description;
        self
    }

    /// Reads a required field.
    pub fn required<T: Field>(&mut self, name: &'static str) -> Option<T> {
        self.describe_field(name, T::schema, true);
        let path = self.path(name);
        match self.take(name) {
            Some((value, origin)) if value != Json::Null => {
                T::read(value, &Location { path: &path, origin }, self.problems)
            }
            found => {
                let at = Location { path: &path, origin: Origin::Body };
                match found {
                    None => self.problems.add(&at, "required", format!("`{path}` is required.")),
                    Some(_) => {
                        self.problems.add(&at, "required", format!("`{path}` is required and can't be null."))
                    }
                }
            }
        }
    }

    /// Reads a field that may be absent or null. The outer `None` means that the value is invalid.
    #[allow(clippy::option_option, reason = "invalid, absent and present are three cases")]
    pub fn optional<T: Field>(&mut self, name: &'static str) -> Option<Option<T>> {
        self.optional_as(name, || nullable(T::schema()))
    }

    #[allow(clippy::option_option, reason = "invalid, absent and present are three cases")]
    fn optional_as<T: Field>(
        &mut self,
        name: &'static str,
        schema: impl FnOnce() -> Value,
    ) -> Option<Option<T>> {
        self.describe_field(name, schema, false);
        let path = self.path(name);
        match self.take(name) {
            None | Some((Json::Null, _)) => Some(None),
            Some((value, origin)) => {
                T::read(value, &Location { path: &path, origin }, self.problems).map(Some)
            }
        }
    }

    /// Reads a field that has a default value if it is absent or null.
    pub fn or<T: Field>(&mut self, name: &'static str, default: T) -> Option<T> {
        self.optional(name).map(|value| value.unwrap_or(default))
    }

    /// Reads a nested object. An absent or null object is read like `{}`.
    pub fn object<T: Record<S>>(&mut self, name: &'static str) -> Option<T> {
        self.object_as(name, || nullable(describe::<S, T>().to_value()))
    }

    fn object_as<T: Record<S>>(&mut self, name: &'static str, schema: impl FnOnce() -> Value) -> Option<T> {
        self.describe_field(name, schema, false);
        let path = self.path(name);
        let members = match self.take(name) {
            None | Some((Json::Null, _)) => Members::new(),
            Some((Json::Object(members), _)) => members,
            Some((other, origin)) => {
                return self.problems.wrong_type(&Location { path: &path, origin }, "an object", &other);
            }
        };
        read_at(self.state, members.into(), &format!("{path}."), self.problems)
    }

    /// Reads a field of a merge patch that can be cleared (RFC 7396). An absent field is kept, and null
    /// clears it.
    pub fn patch<T: Field>(&mut self, name: &'static str) -> Option<Patch<T>> {
        let null = self.is_null(name);
        self.optional(name).map(|value| Patch::of(value, null))
    }

    /// Reads a field of a merge patch that can't be cleared. An absent field is kept, and null is refused.
    #[allow(clippy::option_option, reason = "invalid, absent and present are three cases")]
    pub fn change<T: Field>(&mut self, name: &'static str) -> Option<Option<T>> {
        let null = self.is_null(name);
        let value = self.optional_as(name, T::schema);
        if null { self.refuse_null(name) } else { value }
    }

    /// Reads an object of a merge patch that can be cleared as a whole.
    pub fn patch_object<T: Record<S>>(&mut self, name: &'static str) -> Option<Patch<T>> {
        let (absent, null) = (self.is_absent(name), self.is_null(name));
        let value = self.object(name)?;
        Some(Patch::of((!absent && !null).then_some(value), null))
    }

    /// Reads an object of a merge patch that can't be cleared as a whole. An absent object is read like `{}`,
    /// and null is refused.
    pub fn change_object<T: Record<S>>(&mut self, name: &'static str) -> Option<T> {
        let null = self.is_null(name);
        let value = self.object_as(name, || describe::<S, T>().to_value());
        if null { self.refuse_null(name) } else { value }
    }

    fn refuse_null<T>(&mut self, name: &str) -> Option<T> {
        self.problem(
            name,
            "required",
            format!("`{}` can't be null. Omit it to keep its value.", self.path(name)),
        )
    }

    fn is_null(&self, name: &str) -> bool {
        self.sent.body.iter().any(|(other, value)| other == name && *value == Json::Null)
    }

    fn is_absent(&self, name: &str) -> bool {
        self.sent.body.iter().all(|(other, _)| other != name)
    }

    /// Adds a problem of a field that the field's reader can't find, for instance a problem that concerns
    /// several fields.
    pub fn problem<T>(&mut self, name: &str, code: &'static str, message: impl Into<String>) -> Option<T> {
        let path = self.path(name);
        self.problems.add(&Location { path: &path, origin: Origin::Body }, code, message)
    }

    fn describe_field(&mut self, name: &'static str, schema: impl FnOnce() -> Value, is_required: bool) {
        if let Some(names) = &mut self.names {
            names.push(name);
        }
        let description = std::mem::take(&mut self.description);
        if let Some(schema_so_far) = &mut self.schema {
            // The text of a doc comment begins with a space.
            let (schema, description) = (schema(), description.trim_start());
            schema_so_far.properties.push(Property { name, schema, is_required, description });
        }
    }

    fn path<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.prefix {
            "" => Cow::Borrowed(name),
            prefix => Cow::Owned(format!("{prefix}{name}")),
        }
    }

    fn take(&mut self, name: &str) -> Option<(Json<'a>, Origin)> {
        let Sent { query, body } = &mut self.sent;
        [(body, Origin::Body), (query, Origin::Query)].into_iter().find_map(|(members, origin)| {
            let index = members.iter().position(|(other, _)| other == name)?;
            Some((members.swap_remove(index).1, origin))
        })
    }

    /// Refuses unknown fields, so that a misspelled `restrictions` can't create an unrestricted key.
    fn refuse_unknown(&mut self, mut unknown: Members<'_>, known: &[&'static str]) {
        unknown.sort_by(|(a, _), (b, _)| a.cmp(b));
        let named = MAX_UNKNOWN_FIELDS.saturating_sub(self.problems.unknown_fields);
        self.problems.unknown_fields += unknown.len();
        for (name, _) in unknown.into_iter().take(named) {
            let meant = closest(&name, known.iter().copied());
            let name = truncated(&name);
            let path = self.path(&name);
            let message = match meant {
                Some(meant) => format!("Unknown field `{path}`; did you mean `{}`?", self.path(meant)),
                None => format!("Unknown field `{path}`; the valid fields are: {}.", known.join(", ")),
            };
            self.problems.add::<()>(
                &Location { path: &path, origin: Origin::Body },
                "unknown_field",
                message,
            );
        }
    }
}

/// Reads a whole input.
///
/// # Errors
/// 400 with every problem.
pub fn read<'a, S, T: Record<S>>(state: &S, sent: impl Into<Sent<'a>>) -> Result<T, Error> {
    let mut problems = Problems::default();
    match read_at(Some(state), sent.into(), "", &mut problems) {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(Error::invalid(problems.into_details())),
    }
}

/// Describes the fields of a record.
pub fn describe<S, T: Record<S>>() -> ObjectSchema {
    visit::<S, T>(None, Some(ObjectSchema::default())).1.unwrap_or_default()
}

/// Visits every field of a record, without values: the problems that this finds are ignored. Returns the names
/// and the schema with the fields added.
fn visit<S, T: Record<S>>(
    names: Option<Vec<&'static str>>,
    schema: Option<ObjectSchema>,
) -> (Option<Vec<&'static str>>, Option<ObjectSchema>) {
    let (mut problems, sent) = (Problems::default(), Sent::default());
    let mut fields =
        Fields { state: None, sent, prefix: "", problems: &mut problems, names, description: "", schema };
    drop(T::read(&mut fields));
    (fields.names, fields.schema)
}

fn read_at<S, T: Record<S>>(
    state: Option<&S>,
    sent: Sent<'_>,
    prefix: &str,
    problems: &mut Problems,
) -> Option<T> {
    let mut fields = Fields { state, sent, prefix, problems, names: None, description: "", schema: None };
    let value = T::read(&mut fields);
    let unknown = std::mem::take(&mut fields.sent.body);
    if !unknown.is_empty() {
        let known = visit::<S, T>(Some(Vec::new()), None).0.unwrap_or_default();
        fields.refuse_unknown(unknown, &known);
    }
    value
}

/// Reads a body without the program's state. Rules that need the state aren't checked.
pub fn read_without_state<S, T: Record<S>>(bytes: &[u8]) -> Option<T> {
    let members = object(bytes).ok()?;
    let mut problems = Problems::default();
    read_at(None::<&S>, members.into(), "", &mut problems).filter(|_| problems.is_empty())
}

/// Shortens a name from the input, so that a message can repeat it.
fn truncated(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Parses the members of a JSON object. An empty body is treated as an empty object, so that the error names
/// the missing fields.
pub fn object(bytes: &[u8]) -> Result<Members<'_>, Error> {
    if bytes.is_empty() {
        return Ok(Members::new());
    }
    match json::parse(bytes)? {
        Json::Object(members) => Ok(members),
        other => Err(Error::new(Code::InvalidJson)
            .param("body")
            .message(format!("The body must be a JSON object, not {}.", other.type_name()))),
    }
}

fn nullable(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) => kinds.push(json!("null")),
        Some(kind) => *kind = json!([kind.clone(), "null"]),
        None => {}
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

    fn read(body: Vec<(&str, Json<'_>)>) -> (Option<Change>, Vec<String>) {
        let body: Members<'_> = body.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let mut problems = Problems::default();
        let change = read_at(None::<&()>, body.into(), "", &mut problems);
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
    fn merge_patch_distinguishes_absent_from_null() {
        let (change, problems) = read(vec![]);
        let change = change.unwrap();
        assert!(problems.is_empty() && change.name.is_none());
        assert_eq!(change.note.map(|text| text.0).onto(Some("old".to_owned())), Some("old".to_owned()));
        assert_eq!((change.inner, change.fixed), (Patch::Keep, Inner(Patch::Keep)));

        let (change, _) = read(vec![("note", Json::Null), ("inner", Json::Null)]);
        let change = change.unwrap();
        assert_eq!(change.note.map(|text| text.0).onto(Some("old".to_owned())), None);
        assert_eq!(change.inner, Patch::Clear);

        let inner = Json::Object(vec![("a".into(), Json::Null)]);
        let (change, _) = read(vec![("note", Json::Text("new".into())), ("inner", inner)]);
        let change = change.unwrap();
        assert_eq!(change.note.map(|text| text.0).onto(None), Some("new".to_owned()));
        assert_eq!(change.inner, Patch::Set(Inner(Patch::Clear)));
    }

    #[test]
    fn twenty_unknown_fields_are_named_across_all_objects() {
        let names: Vec<String> = (100..140).map(|number| format!("z{number}")).collect();
        let unknown = |count: usize| names.iter().take(count).map(|name| (name.as_str(), Json::Null));
        let (_, problems) = read(unknown(20).collect());
        assert!(problems.len() == 20 && problems.iter().all(|problem| problem.ends_with(" unknown_field")));
        let (_, problems) = read(unknown(21).collect());
        assert_eq!((problems.len(), problems[20].as_str()), (21, "body too_many"));
        let members = unknown(15).map(|(name, value)| (name.into(), value)).collect();
        let (_, problems) = read(unknown(15).chain([("inner", Json::Object(members))]).collect());
        assert_eq!(problems.len(), 21, "{problems:?}");
        let of_inner = problems.iter().filter(|problem| problem.starts_with("inner.")).count();
        assert_eq!((of_inner, problems[20].as_str()), (15, "body too_many"));
    }

    #[test]
    fn fields_that_can_not_be_cleared_refuse_null() {
        let (change, problems) = read(vec![("name", Json::Null), ("fixed", Json::Null)]);
        assert!(change.is_none());
        assert_eq!(problems, ["name required", "fixed required"]);
    }
}
