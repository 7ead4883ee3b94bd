//! The Prometheus text format, version 0.0.4: families with HELP and TYPE, samples with escaped labels. It knows the
//! form and no metric.

use std::fmt::Write;

use neap_control::instruments::Snapshot;

/// What Prometheus is told about the body.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

/// One family being written: its samples follow each other, as the format wants them.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Begins a family. Each name is begun once.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}");
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.word());
        Family { out: &mut self.text, name }
    }

    /// A family of one sample.
    pub fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: u64) {
        self.line("", labels, None, &value.to_string());
    }

    /// A count of thousandths, or of other parts of a unit.
    pub fn parts(&mut self, labels: Labels<'_>, value: u64, per_unit: u64) {
        self.line("", labels, None, &decimal(value, per_unit));
    }

    pub fn histogram(&mut self, labels: Labels<'_>, seen: &Snapshot) {
        let per_unit = seen.scale.per_unit;
        for (bound, count) in seen.scale.bounds.iter().zip(&seen.cumulative) {
            self.line("_bucket", labels, Some(&decimal(*bound, per_unit)), &count.to_string());
        }
        self.line("_bucket", labels, Some("+Inf"), &seen.count.to_string());
        self.line("_sum", labels, None, &decimal(seen.sum, per_unit));
        self.line("_count", labels, None, &seen.count.to_string());
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>, value: &str) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        let mut opened = false;
        for (key, value) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            self.out.push(if opened { ',' } else { '{' });
            opened = true;
            let _ = write!(self.out, "{key}=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    other => self.out.push(other),
                }
            }
            self.out.push('"');
        }
        if opened {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// `value / per_unit` exactly, without trailing zeros; `per_unit` is a power of ten.
fn decimal(value: u64, per_unit: u64) -> String {
    let (whole, rest) = (value / per_unit.max(1), value % per_unit.max(1));
    if rest == 0 {
        return whole.to_string();
    }
    let width = per_unit.ilog10() as usize;
    let text = format!("{whole}.{rest:0width$}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_control::instruments::{Histogram, Scale};

    #[test]
    fn parts_of_a_unit_are_exact() {
        for (value, per_unit, expect) in [
            (0, 1_000_000, "0"),
            (250, 1_000_000, "0.00025"),
            (2_500_000, 1_000_000, "2.5"),
            (86_400_000_000, 1_000_000, "86400"),
            (4_096, 1, "4096"),
            (1_500, 1_000, "1.5"),
        ] {
            assert_eq!(decimal(value, per_unit), expect);
        }
    }

    #[test]
    fn a_family_as_it_is_written() {
        static SCALE: Scale = Scale { bounds: &[1_000, 500_000], per_unit: 1_000_000 };
        let histogram = Histogram::new(&SCALE);
        histogram.observe(700);
        histogram.observe(2_000_000);
        let mut out = Exposition::default();
        out.family("a_total", Kind::Counter, "What\nit \\ is.")
            .sample(&[("name", "a \"b\" \\ c\nd"), ("x", "y")], 3);
        out.family("b_seconds", Kind::Histogram, "Time.").histogram(&[("k", "v")], &histogram.snapshot());
        let expect = "# HELP a_total What\\nit \\\\ is.
# TYPE a_total counter
a_total{name=\"a \\\"b\\\" \\\\ c\\nd\",x=\"y\"} 3
# HELP b_seconds Time.
# TYPE b_seconds histogram
b_seconds_bucket{k=\"v\",le=\"0.001\"} 1
b_seconds_bucket{k=\"v\",le=\"0.5\"} 1
b_seconds_bucket{k=\"v\",le=\"+Inf\"} 2
b_seconds_sum{k=\"v\"} 2.0007
b_seconds_count{k=\"v\"} 2
";
        assert_eq!(out.into_text(), expect);
    }
}
