//! The tokens of a stream, counted as events arrive.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bounds, Partial, ReportedParts, Searches, Settled, TextTokens, Totals, Usage, larger_parts, with_searches,
};
use catalog::{Component, PerPart, ServiceTier};

/// The maximum number of answers of a call: 128 to each of 2,048 prompts.
const MAX_CHOICES: usize = 128 * 2_048;

/// The counts of one chunk. Most chunks have no usage, so it is boxed: a chunk is moved several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkCounts {
    pub(crate) choices: Vec<ChoiceText>,
    pub(crate) usage: Option<Box<Usage>>,
    /// The readable counts of a `usage` object that isn't valid as a whole.
    pub(crate) partial: Option<Box<Partial>>,
    /// The service tier that the chunk names.
    pub(crate) service_tier: Option<ServiceTier>,
}

/// The counts of one choice in a chunk.
#[derive(Clone, Default, Debug)]
pub(crate) struct ChoiceText {
    pub(crate) index: usize,
    /// The tokens of the generated text.
    pub(crate) text: TextTokens,
    pub(crate) is_finished: bool,
    /// A `usage` object inside the choice, as Kimi sends it.
    pub(crate) usage: Option<Box<Usage>>,
}

/// The text received, from which tokens are estimated.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    /// The number of choices with text in all events.
    events: i64,
    text: TextTokens,
}

impl Seen {
    fn add(&mut self, text: TextTokens) {
        self.events += 1;
        self.text += text;
    }

    fn remove(&mut self, part: Self) {
        self.events -= part.events;
        self.text -= part.text;
    }

    /// Returns the estimate: a token for each event, or the tokens of the text if they are more.
    fn tokens(self) -> i64 {
        self.events.max(self.text.count())
    }
}

/// A count that was received several times. A zero doesn't reset it.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Counts {
    largest: i64,
    last: i64,
}

impl Counts {
    fn add(&mut self, tokens: i64) {
        if tokens > 0 {
            self.last = tokens;
            self.largest = tokens.max(self.largest);
        }
    }

    /// Returns the current count. In a stream that ended cleanly, the last count is right, regardless of
    /// earlier counts. Until then, counts only grow.
    const fn now(self, is_complete: bool) -> i64 {
        if is_complete { self.last } else { self.largest }
    }
}

/// The counts of the prompt and of the answer.
#[derive(Clone, Default, Debug)]
struct UsageCounts {
    prompt: Counts,
    completion: Counts,
    /// The counts of parts. They are boxed to keep the struct small, because a call may have many choices and
    /// few upstreams count the parts of each.
    parts: Option<Box<PerPart<Counts>>>,
}

impl UsageCounts {
    fn add(&mut self, usage: &Usage) {
        self.prompt.add(usage.prompt_tokens);
        self.completion.add(usage.completion_tokens);
        for (part, quantity) in usage.parts.iter() {
            let parts = self.parts.get_or_insert_default();
            let mut counts = parts.get(part);
            counts.add(quantity.unwrap_or_default());
            parts.set(part, counts);
        }
    }

    fn of(&self, component: Component) -> Counts {
        match component {
            Component::Prompt => self.prompt,
            Component::Completion => self.completion,
            part => self.parts.as_ref().map_or_else(Counts::default, |parts| parts.get(part)),
        }
    }
}

/// The part of a stream that a `usage` object counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    /// All of the stream so far.
    Stream,
    /// A single choice so far: vLLM and SGLang count each choice separately.
    Choice,
}

/// A counter of the tokens of a stream, which is updated as events arrive.
#[derive(Clone, Debug)]
pub struct StreamCounter {
    /// The number of requested choices.
    choices: usize,
    /// The number of prompts.
    prompt_count: usize,
    /// The number of choices for each prompt.
    choices_per_prompt: usize,
    /// The choices that have begun.
    begun: BTreeSet<usize>,
    /// The choices with a finish reason.
    finished: BTreeSet<usize>,
    is_done: bool,
    /// `true` if the prompt is charged: a chunk with choices has arrived, or the client has left.
    has_prompt: bool,
    seen: Seen,
    /// The text that no `usage` object covers yet.
    seen_since: Seen,
    /// The text of each choice that no `usage` object covers yet, if the call has several choices.
    seen_since_of: BTreeMap<usize, Seen>,
    /// The tokens of the prompt, in case the upstream doesn't count them.
    estimated_prompt_tokens: i64,
    /// The counts of the whole stream.
    whole: Option<UsageCounts>,
    /// The counts of each choice, if the call has several choices.
    each: BTreeMap<usize, UsageCounts>,
    /// The part of the stream that the last `usage` object counted.
    last: Option<Counted>,
    cached_prompt_tokens: Option<i64>,
    /// The parts that a `usage` object has reported.
    said: PerPart<bool>,
    /// The number of finished searches, counted from their results.
    searches: i64,
    service_tier: Option<ServiceTier>,
    /// The readable counts of invalid `usage` objects, until a valid one arrives.
    partial: Partial,
    /// `true` once a `usage` object without choices has arrived, which is at the end of a stream.
    has_total: bool,
    /// `true` if the client left before any text, and no `usage` object has arrived since.
    awaits_usage: bool,
}

impl StreamCounter {
    /// Returns a counter for a stream with this number of choices, which are divided evenly among the
    /// prompts. `estimated_prompt_tokens` covers all prompts, in case the upstream doesn't count them.
    pub fn new(choices: i64, prompts: i64, estimated_prompt_tokens: i64) -> Self {
        let choices = usize::try_from(choices).unwrap_or_default().clamp(1, MAX_CHOICES);
        let prompts = usize::try_from(prompts).unwrap_or_default().clamp(1, choices);
        Self {
            choices,
            prompt_count: prompts,
            choices_per_prompt: choices / prompts,
            begun: BTreeSet::new(),
            finished: BTreeSet::new(),
            is_done: false,
            has_prompt: false,
            seen: Seen::default(),
            seen_since: Seen::default(),
            seen_since_of: BTreeMap::new(),
            estimated_prompt_tokens,
            whole: None,
            each: BTreeMap::new(),
            last: None,
            cached_prompt_tokens: None,
            said: PerPart::default(),
            searches: 0,
            service_tier: None,
            partial: Partial::default(),
            has_total: false,
            awaits_usage: false,
        }
    }

    /// Counts a chunk.
    pub(crate) fn add(&mut self, chunk: &ChunkCounts) {
        self.has_prompt |= !chunk.choices.is_empty();
        self.service_tier = chunk.service_tier.or(self.service_tier);
        for choice in &chunk.choices {
            if !choice.text.is_empty() {
                self.seen.add(choice.text);
                self.seen_since.add(choice.text);
                if self.choices > 1 {
                    self.seen_since_of.entry(self.place(choice.index)).or_default().add(choice.text);
                }
            }
            if choice.index < self.choices {
                self.begun.insert(choice.index);
                if choice.is_finished {
                    self.finished.insert(choice.index);
                }
            }
            if let Some(usage) = &choice.usage {
                self.add_usage(Some(choice.index), usage);
            }
        }
        let Some(usage) = &chunk.usage else {
            if let Some(partial) = &chunk.partial
                && (self.choices == 1 || chunk.choices.is_empty())
            {
                self.add_partial(partial);
            }
            return;
        };
        match chunk.choices.as_slice() {
            [] => {
                self.has_total |= usage.prompt_tokens > 0;
                self.add_usage(None, usage);
            }
            [only] => self.add_usage(Some(only.index), usage),
            _ => self.add_usage(None, usage),
        }
    }

    /// Returns the index under which a choice is counted.
    fn place(&self, index: usize) -> usize {
        index.min(self.choices - 1)
    }

    /// Notes the counts of a `usage` object that isn't valid as a whole.
    fn add_partial(&mut self, partial: &Partial) {
        self.partial.prompt = partial.prompt.max(self.partial.prompt);
        self.partial.cached = partial.cached.max(self.partial.cached);
        self.partial.parts = larger_parts(self.partial.parts, &partial.parts);
        if partial.completion > self.partial.completion {
            self.partial.completion = partial.completion;
            if self.last.is_none() {
                self.seen_since = Seen::default();
                self.seen_since_of.clear();
            }
        }
    }

    /// Returns the readable counts of invalid `usage` objects.
    pub(crate) fn partial(&self) -> Partial {
        self.partial
    }

    /// Returns the last service tier that the stream named.
    pub(crate) fn service_tier(&self) -> Option<ServiceTier> {
        self.service_tier
    }

    /// Adds finished searches.
    pub(crate) fn add_searches(&mut self, searches: Searches) {
        self.searches = self.searches.saturating_add(searches.count());
    }

    /// Notes the total number of finished searches.
    pub(crate) fn note_searches(&mut self, searches: Searches) {
        self.searches = searches.count().max(self.searches);
    }

    /// Notes a `usage` object, of one choice or of all.
    fn add_usage(&mut self, choice: Option<usize>, usage: &Usage) {
        if usage.is_nothing() {
            return;
        }
        let counts = match choice.filter(|_| self.choices > 1).map(|index| self.place(index)) {
            Some(place) => {
                self.last = Some(Counted::Choice);
                self.seen_since.remove(self.seen_since_of.remove(&place).unwrap_or_default());
                self.each.entry(place).or_default()
            }
            None => {
                self.last = Some(Counted::Stream);
                self.seen_since = Seen::default();
                self.seen_since_of.clear();
                self.whole.get_or_insert_default()
            }
        };
        counts.add(usage);
        for (part, _) in usage.parts.iter() {
            self.said.set(part, true);
        }
        let cached = usage.cached_prompt_tokens;
        self.cached_prompt_tokens =
            cached.filter(|tokens| *tokens > 0).or(self.cached_prompt_tokens).or(cached);
        self.awaits_usage = false;
    }

    /// Returns `true` if the upstream has counted every prompt and all generated tokens: all received text
    /// and, if the client has left before any text, the earlier tokens without visible text.
    pub fn is_counted(&self) -> bool {
        let has_all = match self.last {
            None => false,
            Some(Counted::Stream) => true,
            Some(Counted::Choice) => self.counted_prompts(Component::Prompt).len() >= self.prompt_count,
        };
        has_all && self.seen_since.events == 0 && !self.awaits_usage
    }

    /// Notes that the client has left. The upstream has the prompt, so it is charged even if no answer has
    /// arrived. Before the first text, a model may have reasoned for a long time. The next `usage` object
    /// reports those tokens.
    pub fn mark_left(&mut self) {
        self.has_prompt = true;
        self.awaits_usage = self.seen.events == 0 && !self.is_finished();
    }

    /// Notes `[DONE]`.
    pub fn mark_done(&mut self) {
        self.is_done = true;
    }

    /// Notes that the body ended cleanly. The stream is then complete if every choice is finished, because
    /// some servers don't send `[DONE]`.
    pub fn mark_end_of_body(&mut self) {
        self.is_done |= self.is_finished();
    }

    /// Returns whether every requested choice has a finish reason.
    pub fn is_finished(&self) -> bool {
        self.finished.len() >= self.choices
    }

    /// Returns whether the answer is complete: the stream has ended, and every choice that has begun has a
    /// finish reason. Some servers generate only one answer, no matter how many are requested.
    pub fn is_complete(&self) -> bool {
        self.is_done && !self.finished.is_empty() && self.finished.len() == self.begun.len()
    }

    /// Returns whether a `usage` object has counted text that arrived with it or before it.
    pub fn is_counting(&self) -> bool {
        self.last.is_some() && self.seen.events > 0 && self.seen_since.events == 0 && self.counted().1 > 0
    }

    /// Returns the upstream's counts so far; `None` if it hasn't sent any.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.last?;
        let (prompt_tokens, completion_tokens) = self.counted();
        let (cached_prompt_tokens, parts) = (self.cached_prompt_tokens, self.counted_parts());
        Some(Usage { prompt_tokens, completion_tokens, cached_prompt_tokens, parts })
    }

    /// Returns whether a `usage` object has arrived.
    pub fn has_usage(&self) -> bool {
        self.last.is_some()
    }

    /// Returns whether the upstream has generated far more than it was allowed to, either by its own count or
    /// by the events with text that it hasn't counted.
    pub fn exceeds(&self, bounds: Bounds) -> bool {
        /// Servers may count some special tokens, or split a token across events.
        const LEEWAY: i64 = 64;
        let counted = if self.last.is_some() { self.counted().1 } else { 0 };
        counted.saturating_add(self.seen_since.events / 2) - LEEWAY > bounds.completion_tokens
            && !self.is_finished()
    }

    /// Returns the charge if the stream ends here. Before the first chunk, nothing is charged unless the
    /// client has left.
    pub fn settle(&self, bounds: Bounds) -> Settled {
        let parts = match self.last {
            Some(_) => self.counted_parts(),
            None => self.with_searches(self.partial.parts),
        };
        let settled = self.totals(bounds).with_parts(&parts);
        Settled { service_tier: self.service_tier.unwrap_or_default(), ..settled }
    }

    /// Returns the totals of the charge if the stream ends here.
    pub(crate) fn totals(&self, bounds: Bounds) -> Totals {
        if self.last.is_none() {
            return self.estimated_totals(bounds);
        }
        let (prompt_tokens, counted) = self.counted();
        // Many servers report the cached tokens only at the end.
        let lacks_parts = bounds.priced.lack(self.cached_prompt_tokens, |part| self.has_reported(part));
        let may_lack = lacks_parts && !self.has_total && !self.is_complete();
        let totals = Totals {
            prompt_tokens,
            completion_tokens: counted.saturating_add(self.seen_since.tokens()),
            cached_prompt_tokens: self.cached_prompt_tokens,
            estimated: self.seen_since.events > 0 || may_lack,
        };
        totals.within(bounds.counted_prompt_tokens, bounds)
    }

    /// Returns the totals of the charge without a valid `usage` object.
    fn estimated_totals(&self, bounds: Bounds) -> Totals {
        let estimated_prompt_tokens = if self.has_prompt { self.estimated_prompt_tokens } else { 0 };
        let completion_tokens = match self.partial.completion {
            Some(counted) => counted.saturating_add(self.seen_since.tokens()),
            None => self.seen.tokens(),
        };
        let (prompt_tokens, max_prompt_tokens) = match self.partial.prompt {
            Some(counted) => (counted, bounds.counted_prompt_tokens),
            None => (estimated_prompt_tokens, bounds.reserved_prompt_tokens),
        };
        let cached_prompt_tokens = self.partial.cached;
        let totals = Totals { prompt_tokens, completion_tokens, cached_prompt_tokens, estimated: true };
        totals.within(max_prompt_tokens, bounds)
    }

    /// Returns whether the upstream has reported this part, or searches have been counted.
    fn has_reported(&self, part: Component) -> bool {
        self.said.get(part) || (part == Component::Search && self.searches > 0)
    }

    /// Returns the tokens of the prompts and of the answers as counted by the upstream.
    fn counted(&self) -> (i64, i64) {
        (self.counted_of(Component::Prompt), self.counted_of(Component::Completion))
    }

    /// Returns the parts as counted by the upstream.
    fn counted_parts(&self) -> ReportedParts {
        let parts = self.said.iter().map(|(part, _)| (part, self.counted_of(part)));
        let parts =
            parts.fold(ReportedParts::default(), |parts, (part, count)| parts.with(part, Some(count)));
        self.with_searches(parts)
    }

    /// Returns parts with the searches of the stream, if they are more than the usage reports.
    fn with_searches(&self, parts: ReportedParts) -> ReportedParts {
        with_searches(parts, self.searches)
    }

    /// Returns the quantity of a component as counted by the upstream.
    fn counted_of(&self, component: Component) -> i64 {
        let is_complete = self.is_complete();
        let sum = |tokens: &mut dyn Iterator<Item = i64>| tokens.fold(0, i64::saturating_add);
        let is_of_prompt = component.tokens() == Some(Component::Prompt);
        let each = match is_of_prompt {
            true => sum(&mut self.counted_prompts(component).into_values()),
            false => sum(&mut self.each.values().map(|counts| counts.of(component).now(is_complete))),
        };
        let Some(whole) = &self.whole else { return each };
        let whole = whole.of(component).now(is_complete);
        let is_last = is_complete && self.last == Some(Counted::Stream);
        if is_last && whole > 0 { whole } else { whole.max(each) }
    }

    /// Returns the quantity of a component in each prompt that has a counted choice.
    fn counted_prompts(&self, component: Component) -> BTreeMap<usize, i64> {
        let mut prompts = BTreeMap::<usize, i64>::new();
        for (index, counts) in &self.each {
            let tokens = prompts.entry(index / self.choices_per_prompt).or_default();
            *tokens = counts.of(component).now(self.is_complete()).max(*tokens);
        }
        prompts
    }
}
