//! Requests, counted by face, method and class of status, and timed by face. The time is that until the answer
//! begins: a followed log goes on for as long as its job.

use neap_control::instruments::{Counter, Family, Gauge, Histogram, SHORT};

use super::exposition::{Exposition, Kind};

/// Methods with a label of their own; a client cannot make more.
const METHODS: [&str; 7] = ["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const CLASSES: [&str; 6] = ["0xx", "1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Debug, Default)]
pub(crate) struct HttpMetrics {
    requests: Family<(&'static str, &'static str, &'static str), Counter>,
    durations: Family<&'static str, Histogram>,
    pub in_flight: Gauge,
}

impl HttpMetrics {
    pub fn answered(&self, face: &'static str, method: &str, status: u16, took_us: u64) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
        let class = CLASSES.get(usize::from(status / 100)).copied().unwrap_or("other");
        self.requests.inc(&(face, method, class));
        if let Some(histogram) = self.durations.of(&face, || Histogram::new(&SHORT)) {
            histogram.observe(took_us);
        }
    }

    pub fn write(&self, out: &mut Exposition) {
        let mut family = out.family("neap_http_requests_total", Kind::Counter, "Requests answered.");
        for ((face, method, status), count) in self.requests.all() {
            family.sample(&[("face", face), ("method", method), ("status", status)], count.get());
        }
        let mut family = out.family(
            "neap_http_request_duration_seconds",
            Kind::Histogram,
            "From a request to the beginning of its answer.",
        );
        for (face, histogram) in self.durations.all() {
            family.histogram(&[("face", face)], &histogram.snapshot());
        }
        out.single(
            "neap_http_requests_in_flight",
            Kind::Gauge,
            "Requests being worked on.",
            self.in_flight.get(),
        );
    }
}

/// Which face a path belongs to, as a label: a closed set.
pub(crate) fn face_word(path: &str) -> &'static str {
    let mut words = path.split('/').filter(|part| !part.is_empty()).map(str::to_ascii_lowercase);
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (first.as_str(), second.as_str()) {
        ("subscriptions" | "providers" | "tenants", _) | ("metadata", "endpoints") | ("mferp", _) => "arm",
        ("history" | "data", "v1.0") | ("discovery", "") => "history",
        ("neap", _) => "neap",
        ("metrics", "") => "metrics",
        ("mlflow", "v1.0") => "mlflow",
        ("services", _) => "services",
        ("msi" | "metadata" | "discovery" | ".well-known" | "common", _) => "token",
        _ => "blob",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_a_closed_set() {
        let http = HttpMetrics::default();
        for (path, method, status) in [
            ("/Subscriptions/x", "GET", 200),
            ("/neap/v1/status", "BREW", 999),
            ("/metrics", "GET", 401),
            ("/msi/token", "GET", 200),
            ("/neapst1.blob.core.windows.net/x", "PUT", 201),
        ] {
            http.answered(face_word(path), method, status, 10);
        }
        let mut out = Exposition::default();
        http.write(&mut out);
        let text = out.into_text();
        for line in [
            "neap_http_requests_total{face=\"arm\",method=\"GET\",status=\"2xx\"} 1",
            "neap_http_requests_total{face=\"neap\",method=\"other\",status=\"other\"} 1",
            "neap_http_requests_total{face=\"metrics\",method=\"GET\",status=\"4xx\"} 1",
            "neap_http_requests_total{face=\"token\",method=\"GET\",status=\"2xx\"} 1",
            "neap_http_requests_total{face=\"blob\",method=\"PUT\",status=\"2xx\"} 1",
            "neap_http_request_duration_seconds_count{face=\"arm\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
