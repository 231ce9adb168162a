//! A chunk of a stream with choices, and the choices of a plain answer.

use hyper::body::Bytes;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use crate::count::reading::Text;
use crate::count::{ChoiceText, ChunkCounts, Partial, Usage, service_tier};
use crate::json::{JsonError, Object};
use crate::lenient::{Gather, Lenient, Name};
use crate::revealing_names::with_revealing_names;

/// The members of an answer, streamed or plain, that are read in addition to `choices`.
const NAMES: &[&str] = with_revealing_names!["model", "usage", "service_tier", "timings", "error", "object"];

/// A chunk of a streamed answer, or a whole answer.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) object: Object,
    pub(crate) counts: ChunkCounts,
}

impl Chunk {
    /// Reads the data of an event, or the body of an answer.
    pub(crate) fn read(data: &Bytes) -> Result<Self, JsonError> {
        let (object, choices) = Object::read_lax_with::<Lenient<Choices>>(data.clone(), NAMES, "choices")?;
        let choices = choices.map_or_else(Vec::new, |Lenient(Choices(choices))| choices);
        let (usage, partial) = read_usage(object.get("usage"), object.get("timings"));
        let service_tier = object.get("service_tier").and_then(service_tier);
        Ok(Self { object, counts: ChunkCounts { choices, usage, partial, service_tier } })
    }
}

/// Reads the members `usage` and `timings`. Returns the usage, or the readable counts of an invalid one.
fn read_usage(usage: Option<&[u8]>, timings: Option<&[u8]>) -> (Option<Box<Usage>>, Option<Box<Partial>>) {
    if usage.is_none() && timings.is_none() {
        return (None, None);
    }
    match Usage::merge(usage.and_then(Usage::read), timings.and_then(Usage::read_timings)) {
        Some(usage) => (Some(Box::new(usage)), None),
        None => (None, usage.map(|usage| Box::new(Usage::read_partial(usage)))),
    }
}

#[derive(Default)]
struct Choices(Vec<ChoiceText>);

impl<'de> Gather<'de> for Choices {
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(choice)) = items.next_element()? {
            self.0.push(choice);
        }
        Ok(())
    }
}

impl<'de> Gather<'de> for ChoiceText {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "index" => self.index = members.next_value::<Lenient<Index>>()?.0.0,
                "finish_reason" => self.is_finished = members.next_value::<Lenient<IsFinished>>()?.0.0,
                "delta" | "message" | "text" => self.text += members.next_value::<Lenient<Text>>()?.0.0,
                "usage" => {
                    let usage: &serde_json::value::RawValue = members.next_value()?;
                    self.usage = Usage::read(usage.get().as_bytes()).map(Box::new);
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Index(usize);

impl Gather<'_> for Index {
    fn integer(&mut self, number: i64) {
        self.0 = usize::try_from(number).unwrap_or_default();
    }
}

/// `true` if the finish reason is a string that isn't empty.
#[derive(Default)]
struct IsFinished(bool);

impl Gather<'_> for IsFinished {
    fn text(&mut self, text: &str) {
        self.0 = !text.is_empty();
    }
}
