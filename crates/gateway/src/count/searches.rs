//! The web searches in a response.

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use crate::lenient::{Gather, Lenient, Name};

/// The type of a search item.
const CALL: &str = "web_search_call";

/// The number of finished searches in an item of a response's output, or in all items. An item that opens a
/// page or searches within a page isn't counted, because OpenAI charges only for searches.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Searches(i64);

impl Searches {
    /// Reads an item, or an array of them.
    pub(crate) fn read(value: &[u8]) -> Self {
        // Parsing is skipped for items without searches: they are the majority, and some are large.
        if memchr::memmem::find(value, CALL.as_bytes()).is_none() {
            return Self::default();
        }
        serde_json::from_slice::<Lenient<Self>>(value).unwrap_or_default().0
    }

    /// Returns the number of searches.
    pub(crate) const fn count(self) -> i64 {
        self.0
    }
}

impl<'de> Gather<'de> for Searches {
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(Self(searches))) = items.next_element()? {
            self.0 = self.0.saturating_add(searches);
        }
        Ok(())
    }

    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        let (mut is_call, mut is_finished, mut is_search) = (false, true, true);
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "type" => is_call = members.next_value::<Lenient<Word>>()?.0.is(CALL),
                "status" => is_finished = members.next_value::<Lenient<Word>>()?.0.is("completed"),
                "action" => {
                    let Lenient(Action(kind)) = members.next_value()?;
                    is_search = kind.0.is_empty() || kind.is("search");
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        self.0 = i64::from(is_call && is_finished && is_search);
        Ok(())
    }
}

#[derive(Default)]
struct Word(String);

impl Word {
    fn is(&self, word: &str) -> bool {
        self.0 == word
    }
}

impl Gather<'_> for Word {
    fn text(&mut self, text: &str) {
        text.clone_into(&mut self.0);
    }
}

/// The type of an action.
#[derive(Default)]
struct Action(Word);

impl<'de> Gather<'de> for Action {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "type" => self.0 = members.next_value::<Lenient<Word>>()?.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
