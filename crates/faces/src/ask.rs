//! A request as handlers see it: path segments normalised once, query without regard to case, body as JSON on demand.

use axum::http::{HeaderMap, Method, Uri, header};
use bytes::Bytes;
use neap_core::{Code, Refusal};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Who asks: the name in a verified token. It becomes the actor of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub actor: String,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub method: Method,
    /// Path segments: keywords in lower case, names as they came.
    pub segments: Vec<String>,
    pub query: Query,
    /// Less the one that authenticates.
    pub headers: HeaderMap,
    /// `https://HOST:PORT` as the client sees us.
    pub base: String,
    pub caller: Caller,
    pub body: Bytes,
}

impl Ask {
    /// The body as JSON; an empty one is `null`.
    pub fn json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body)
            .map_err(|e| Refusal::because(Code::BadArgument, format!("The request body is not JSON: {e}.")))
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty())
    }

    /// Why a change is made, as the caller puts it.
    pub fn change_reference(&self) -> Option<&str> {
        // Not `to_str`, which knows ASCII alone.
        let value = self.headers.get("x-neap-change-reference")?;
        std::str::from_utf8(value.as_bytes()).ok()
    }

    /// `HOST:PORT` of `base`.
    pub fn authority(&self) -> &str {
        self.base.trim_start_matches("https://")
    }

    pub fn segments(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Self {
        let decode =
            |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }

    /// The same query with one value replaced, as text: for links to the next page.
    pub fn with(&self, key: &str, value: &str) -> String {
        use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        self.0
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case(key))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .chain([(key, value)])
            .map(|(name, value)| {
                format!("{}={}", encode(name).replace("%24", "$").replace("%2D", "-"), encode(value))
            })
            .collect::<Vec<_>>()
            .join("&")
    }
}

/// Splits a path into segments: doubled slashes count once. From `skip` on the path is keyword, name, keyword, name…
/// as ARM has it: keywords, and the namespace after `providers`, come out in lower case, names as given.
pub fn segments(path: &str, skip: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (index, part) in path.split('/').filter(|part| !part.is_empty()).enumerate() {
        let part = percent_decode_str(part).decode_utf8_lossy().into_owned();
        let is_keyword = index < skip
            || (index - skip).is_multiple_of(2)
            || out.last().is_some_and(|word| word == "providers");
        out.push(if is_keyword { part.to_lowercase() } else { part });
    }
    out
}

/// How the client addressed us, or the configured URL where it did not say.
pub fn base_url(uri: &Uri, headers: &HeaderMap, configured: &str) -> String {
    let good = |host: &&str| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".:-[]_".contains(c))
    };
    uri.authority()
        .map(axum::http::uri::Authority::as_str)
        .or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()))
        .filter(good)
        .map_or_else(|| configured.trim_end_matches('/').to_owned(), |host| format!("https://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_lose_their_case_and_names_keep_it() {
        let check = |path: &str, skip, expect: &[&str]| assert_eq!(segments(path, skip), expect, "{path}");
        check(
            "//Subscriptions/S1/RESOURCEGROUPS/Rg/Providers/Microsoft.MachineLearningServices/Workspaces/Ws/computes/Cpu/listNodes",
            0,
            &[
                "subscriptions",
                "S1",
                "resourcegroups",
                "Rg",
                "providers",
                "microsoft.machinelearningservices",
                "workspaces",
                "Ws",
                "computes",
                "Cpu",
                "listnodes",
            ],
        );
        check(
            "/subscriptions/S/providers/Microsoft.MachineLearningServices/locations/WestUS/vmSizes",
            0,
            &[
                "subscriptions",
                "S",
                "providers",
                "microsoft.machinelearningservices",
                "locations",
                "WestUS",
                "vmsizes",
            ],
        );
        check(
            "/History/v1.0/subscriptions/S/resourceGroups/G",
            2,
            &["history", "v1.0", "subscriptions", "S", "resourcegroups", "G"],
        );
        check("/subscriptions/a%20b/", 0, &["subscriptions", "a b"]);
    }

    #[test]
    fn queries_are_read_without_regard_to_case_and_can_be_rewritten() {
        let query = Query::parse("api-version=2023-08-01&$Skip=x%2By&listViewType=All");
        assert_eq!(query.get("$skip"), Some("x+y"));
        assert_eq!(query.with("$skip", "j/7"), "api-version=2023%2D08%2D01&listViewType=All&$skip=j%2F7");
    }

    #[test]
    fn only_a_plain_host_is_taken_from_the_request() {
        let mut headers = HeaderMap::new();
        let uri = Uri::from_static("/x");
        assert_eq!(base_url(&uri, &headers, "https://127.0.0.1:8443/"), "https://127.0.0.1:8443");
        headers.insert(header::HOST, "localhost:9".parse().unwrap());
        assert_eq!(base_url(&uri, &headers, "x"), "https://localhost:9");
        headers.insert(header::HOST, "a/b\"".parse().unwrap());
        assert_eq!(base_url(&uri, &headers, "https://h"), "https://h");
    }
}
