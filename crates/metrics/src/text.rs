//! Metrics in the Prometheus text format.

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

/// The bucket bounds of durations, in seconds: from a call with a cached key to the longest requests.
const DURATIONS: [f64; 18] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The bucket bounds of sizes, up to the largest transaction.
const SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1_000.0];

/// Metrics by name. They are either counted while the process runs or read when a client requests them.
/// Values that are too large for their type are capped at its maximum.
#[derive(Clone, Debug, Default)]
pub struct Registered(Registry);

#[allow(clippy::expect_used, reason = "names and labels are constants: the first test would find a mistake")]
impl Registered {
    /// Adds a metric.
    fn add<M: Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> M {
        let metric = metric.expect("a valid name");
        self.0.register(Box::new(metric.clone())).expect("another metric has this name");
        metric
    }

    /// Adds a counter without labels.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    /// Adds a counter with labels. A series appears once its label values are first used.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// Adds a gauge with labels. A series appears once its label values are first used.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.add(GaugeVec::new(Opts::new(name, help), labels))
    }

    /// Adds a histogram of seconds with labels. A series appears once its label values are first used.
    pub fn durations(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(DURATIONS.to_vec());
        self.add(HistogramVec::new(options, labels))
    }

    /// Adds a histogram of sizes.
    pub fn sizes(&self, name: &str, help: &str) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(SIZES.to_vec())))
    }

    /// Adds the value of a counter.
    pub fn count(&self, name: &str, help: &str, value: u64) {
        self.counter(name, help).inc_by(value);
    }

    /// Adds the value of a counter of seconds.
    pub fn count_seconds(&self, name: &str, help: &str, value: f64) {
        self.add(Counter::new(name, help)).inc_by(value);
    }

    /// Adds the value of a gauge.
    pub fn gauge(&self, name: &str, help: &str, value: impl TryInto<i64>) {
        self.add(IntGauge::new(name, help)).set(value.try_into().unwrap_or(i64::MAX));
    }

    /// Adds the value of a gauge in seconds.
    pub fn seconds(&self, name: &str, help: &str, value_ms: i64) {
        self.add(Gauge::new(name, help)).set(seconds(value_ms));
    }

    /// Adds the values of a gauge with a label.
    pub fn gauge_each<V: TryInto<i64>>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        rows: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        let gauges = self.add(IntGaugeVec::new(Opts::new(name, help), &[label]));
        for (word, value) in rows {
            gauges.with_label_values(&[word]).set(value.try_into().unwrap_or(i64::MAX));
        }
    }

    /// Returns these metrics and `others` as text.
    pub fn to_text(&self, others: &Self) -> String {
        let mut families = self.0.gather();
        families.extend(others.0.gather());
        TextEncoder::new().encode_to_string(&families).expect("no metric without samples")
    }
}

/// Converts milliseconds to seconds.
#[allow(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
pub fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1_000.0
}

/// Converts nanoseconds to seconds.
pub fn seconds_of_ns(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_names_labels_bounds_and_exact_seconds() {
        assert!(DURATIONS.is_sorted_by(|a, b| a < b) && SIZES.is_sorted_by(|a, b| a < b));
        let (counted, values) = (Registered::default(), Registered::default());
        let durations = counted.durations("d_seconds", "Durations.", &["route"]);
        for took_ns in [25_000, 25_001, 11_000_000_000] {
            durations.with_label_values(&["/a"]).observe(seconds_of_ns(took_ns));
        }
        counted.counters("c_total", "Without a value.", &["code"]);
        values.gauge("a_bytes", "Too large.", u64::MAX);
        values.seconds("b_seconds", "A time.", 1_769_851_800_123);
        values.count("n_total", "A count.", 7);
        let text = counted.to_text(&values);
        for lines in [
            "# HELP d_seconds Durations.\n# TYPE d_seconds histogram\nd_seconds_bucket{route=\"/a\",le=\"0.000025\"} 1\n",
            "d_seconds_bucket{route=\"/a\",le=\"0.00005\"} 2\n",
            "d_seconds_bucket{route=\"/a\",le=\"10\"} 2\nd_seconds_bucket{route=\"/a\",le=\"+Inf\"} 3\n",
            "d_seconds_sum{route=\"/a\"} 11.000050001\nd_seconds_count{route=\"/a\"} 3\n",
            "# TYPE a_bytes gauge\na_bytes 9223372036854776000\n",
            "# TYPE b_seconds gauge\nb_seconds 1769851800.123\n",
            "# TYPE n_total counter\nn_total 7\n",
        ] {
            assert!(text.contains(lines), "{lines} is not in {text}");
        }
        assert!(!text.contains("c_total"), "{text}");
    }
}
