//! The parts of a request that aren't text: its fields, tools, references and media. They are collected in
//! one pass over the body; [`policy`](super::policy) decides which of them are forwarded.
//!
//! Names are compared as lenient parsers compare them ([`names`](crate::names)), in the objects whose members
//! are known: the request itself, the items of a conversation, the parts of their contents, and tools. The
//! members of objects that users define, such as function calls and schemas, aren't checked.

mod addresses;
mod items;
mod media;
mod searches;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use kernel::error::{Detail, Error};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::field_lists::{is_harmless, listed};
use super::tools::Class;
use crate::count::quantity;
use crate::json::JsonError;
use crate::lenient::Name;
use crate::names::{lookalike, misspelled, shown};
use crate::operation::Operation;
use call_log::rules::clients;
use items::{Found, Place, Walk};
use searches::SearchLimits;

pub(crate) use media::{Form, Media, Scheme};

/// Maximum number of members in a request. Real requests have about twenty.
const MAX_FIELDS: usize = 256;
/// The maximum number of distinct kinds of tools and references in a request.
const MAX_USES: usize = 64;
/// The members with the content that a model reads. Some upstreams also read such a member in operations that
/// don't define it.
const CONTENTS: [&str; 4] = ["messages", "input", "prompt", "system"];

/// The names of all known members of requests.
static KNOWN: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    super::NAMES.iter().chain(&CONTENTS).chain(&["tools"]).copied().chain(listed()).collect()
});

/// The parts found in a request.
#[derive(Clone, Default, Debug)]
pub(super) struct Survey {
    /// The names of the request's members that aren't null, as sent by the client.
    pub(super) fields: Vec<Cow<'static, str>>,
    /// The tools, references and costly values that the request uses, each once.
    pub(super) uses: Vec<Use>,
    /// The media that the request refers to by URL.
    pub(super) media: Vec<Media>,
    searches: SearchLimits,
    /// The person that the request names, and the rank of the field that names it.
    end_user: Option<(u8, String)>,
}

/// A feature used by a request, which may cost more or have further access than text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Use {
    /// The name in errors and lists: `tools.web_search`.
    pub(super) name: Cow<'static, str>,
    pub(super) class: Class,
}

impl Survey {
    /// Returns the maximum number of web searches that an upstream may make.
    pub(super) fn most_searches(&self, operation: Operation) -> i64 {
        self.searches.most(operation)
    }

    /// Returns the person that the request names: `safety_identifier`, else `user`, else `metadata.user_id`.
    pub(super) fn end_user(&self) -> Option<&str> {
        self.end_user.as_ref().map(|(_, text)| text.as_str())
    }

    /// Reads a body, which is a JSON object and not nested too deeply.
    ///
    /// # Errors
    /// 400 `unsupported_parameter` for a name that another parser would read as a known name. 400 for too
    /// many members or tools, or for a name with an unpaired surrogate.
    pub(super) fn read(operation: Operation, body: &str) -> Result<Self, Error> {
        let mut walker =
            Walker { operation, text: body, survey: Self::default(), refusal: None, forces_tool: false };
        let mut deserializer = serde_json::Deserializer::from_str(body);
        let outcome = deserializer.deserialize_map(Request(&mut walker));
        let Walker { mut survey, refusal, forces_tool, .. } = walker;
        match (outcome, refusal) {
            (_, Some(refusal)) => return Err(refusal),
            // A name has an unpaired surrogate. The earlier checks accept such names.
            (Err(error), None) => return Err(super::refuse(JsonError::Invalid(error.to_string()))),
            (Ok(()), None) => {}
        }
        if forces_tool || operation != Operation::Responses {
            for found in survey.uses.iter_mut().filter(|found| found.class == Class::OfferedSearch) {
                found.class = Class::HostedTool;
            }
        }
        Ok(survey)
    }
}

/// A walker through the JSON of one request.
struct Walker<'a> {
    operation: Operation,
    text: &'a str,
    survey: Survey,
    refusal: Option<Error>,
    /// `true` if `tool_choice` forces the model to use a tool.
    forces_tool: bool,
}

impl<'a> Walker<'a> {
    /// Ends the parsing with this refusal.
    fn refuse<T, E: serde::de::Error>(&mut self, error: Error) -> Result<T, E> {
        self.refusal.get_or_insert(error);
        Err(E::custom("refused"))
    }

    /// Refuses a name that another parser would read as one of `names`. The path of the object is assembled
    /// only in that case.
    fn check_name<E: serde::de::Error>(
        &mut self,
        (within, member): (&str, Option<&str>),
        name: &str,
        names: &[&'static str],
    ) -> Result<(), E> {
        let Some(meant) = lookalike(name, names.iter().copied()) else { return Ok(()) };
        let place = match member {
            Some(member) => format!("{within}.{member}."),
            None => format!("{within}."),
        };
        self.refuse(misspelled(&place, name, meant))
    }

    fn note<E: serde::de::Error>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        class: Class,
    ) -> Result<(), E> {
        let found = Use { name: name.into(), class };
        if self.survey.uses.contains(&found) {
            return Ok(());
        }
        if self.survey.uses.len() == MAX_USES {
            return self.refuse(too_many("The body has far too many kinds of tools and references."));
        }
        self.survey.uses.push(found);
        Ok(())
    }

    fn reference<E: serde::de::Error>(&mut self, within: &str, name: &str) -> Result<(), E> {
        self.note(format!("{within}.{name}"), Class::Reference)
    }

    /// Returns the position of a value in the body.
    fn place(&self, value: &str) -> Range<usize> {
        let start = value.as_ptr() as usize - self.text.as_ptr() as usize;
        start..start + value.len()
    }

    fn field<E: serde::de::Error>(&mut self, name: &str, value: &RawValue) -> Result<(), E> {
        let value = value.get();
        if value == "null" {
            return Ok(());
        }
        self.note_field(name)?;
        match name {
            "tool_choice" => self.forces_tool = !matches!(value, "\"auto\"" | "\"none\""),
            "max_tool_calls" => self.survey.searches.max_tool_calls = quantity(value.as_bytes()),
            "web_search_options" => self.survey.searches.has_options = true,
            "safety_identifier" => self.note_end_user(0, text_of(value)),
            "user" => self.note_end_user(1, text_of(value)),
            "metadata" => self.note_end_user(2, user_id_of(value)),
            _ => {}
        }
        match is_harmless(name, value) {
            true => Ok(()),
            false => self.note(shown(name), Class::Costly),
        }
    }

    /// Notes the person that a field names, unless a field before it names one. Only the log shows it.
    fn note_end_user(&mut self, rank: u8, text: Option<String>) {
        let text = text.and_then(|text| clients::end_user(&text));
        if let Some(text) = text
            && self.survey.end_user.as_ref().is_none_or(|(known, _)| *known > rank)
        {
            self.survey.end_user = Some((rank, text));
        }
    }

    fn note_field<E: serde::de::Error>(&mut self, name: &str) -> Result<(), E> {
        if self.survey.fields.len() == MAX_FIELDS {
            return self.refuse(too_many("The body has more than 256 members."));
        }
        let known = KNOWN.get(name).map(|known| Cow::Borrowed(*known));
        self.survey.fields.push(known.unwrap_or_else(|| Cow::Owned(shown(name))));
        Ok(())
    }

    /// Calls a function with each member of an object.
    fn members<E: serde::de::Error>(
        &mut self,
        object: &'a str,
        mut act: impl FnMut(&mut Self, &str, &'a RawValue) -> Result<(), E>,
    ) -> Result<(), E> {
        let Pairs(pairs) = serde_json::from_str(object).map_err(E::custom)?;
        pairs.into_iter().try_for_each(|(name, value)| act(self, &name, value))
    }
}

/// Returns a text; `None` for another value.
fn text_of(value: &str) -> Option<String> {
    serde_json::from_str(value).ok()
}

/// Returns the member `user_id` of metadata.
fn user_id_of(value: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        user_id: Option<String>,
    }
    serde_json::from_str::<Metadata>(value).ok()?.user_id
}

fn too_many(message: &str) -> Error {
    Error::invalid(vec![Detail { param: "body".to_owned(), code: "too_many", message: message.to_owned() }])
}

/// The members of an object, in order.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> serde::Deserialize<'a> for Pairs<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'a> Visitor<'a> for PairsVisitor {
    type Value = Pairs<'a>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<Pairs<'a>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((Name(name), value)) = members.next_entry()? {
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}

/// A visitor for the whole request.
struct Request<'w, 'a>(&'w mut Walker<'a>);

impl<'a> Visitor<'a> for Request<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        let Self(walker) = self;
        while let Some(Name(name)) = members.next_key()? {
            if let Some(meant) = lookalike(&name, KNOWN.iter().copied()) {
                return walker.refuse(misspelled("", &name, meant));
            }
            let place = match name.as_ref() {
                "tools" => Place::Tools { is_inner: false },
                _ => Place::Contents { depth: 0 },
            };
            let within = CONTENTS.into_iter().chain(["tools"]).find(|known| *known == name);
            let Some(within) = within else {
                let value: &'a RawValue = members.next_value()?;
                walker.field(&name, value)?;
                continue;
            };
            if members.next_value_seed(Walk { walker, place, within })? != Found::Null {
                walker.note_field(within)?;
            }
        }
        Ok(())
    }
}
