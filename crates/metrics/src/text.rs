//! The Prometheus text format (version 0.0.4).

use std::fmt::{Display, Write};

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number that only rises, until the process ends.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution of values.
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The labels of one sample. The values are the service's own words, so none needs escaping.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text of all metrics.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// An empty text.
    pub fn new() -> Self {
        Self(String::with_capacity(32 * 1024))
    }

    /// Begins a metric; its samples have to follow at once.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = kind.as_str();
        // Writing to a string can't fail.
        write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n").ok();
    }

    /// Writes a sample of the current metric.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(self.0, "{before}{label}=\"{text}\"").ok();
        }
        let end = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{end} {value}").ok();
    }

    /// Writes a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Kind::Counter, help);
        self.sample(name, &[], value);
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Gauge, help);
        self.sample(name, &[], value);
    }

    /// Writes a metric with one label and a sample for each of its values.
    pub fn each<V: Display>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        label: &str,
        rows: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        self.family(name, kind, help);
        for (word, value) in rows {
            self.sample(name, &[(label, word)], value);
        }
    }

    /// Returns the text.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// Nanoseconds, formatted in seconds, exactly.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let digits = format!("{rest:09}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            digits => write!(f, "{whole}.{digits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (nanoseconds, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (25_000, "0.000025"),
            (2_500_000_000, "2.5"),
            (10_000_000_000, "10"),
        ] {
            assert_eq!(Seconds(nanoseconds).to_string(), text);
        }
    }

    #[test]
    fn labels_are_written_in_braces() {
        let mut text = Text::new();
        text.family("a_total", Kind::Counter, "What a counts.");
        text.sample("a_total", &[("x", "1"), ("y", "{z}")], 7);
        text.gauge("b", "What b is.", -1);
        assert_eq!(
            text.into_string(),
            "# HELP a_total What a counts.\n# TYPE a_total counter\na_total{x=\"1\",y=\"{z}\"} 7\n\
             # HELP b What b is.\n# TYPE b gauge\nb -1\n"
        );
    }
}
