//! A request, and what must be done before it can be sent: uploads, look-ups, registrations.
//!
//! A preparation's answer is not known while the request is built. A *mark* stands in its place; [`Request::fill`]
//! puts the answer wherever the mark is, also in later preparations. Nothing is done here.

use serde_json::Value;
use std::path::PathBuf;

/// A kind of versioned asset of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collection {
    Components,
    Data,
    Environments,
    Models,
}

impl Collection {
    /// Its segment in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Components => "components",
            Self::Data => "data",
            Self::Environments => "environments",
            Self::Models => "models",
        }
    }

    /// What people call one of them.
    pub fn word(self) -> &'static str {
        match self {
            Self::Components => "component",
            Self::Data => "data asset",
            Self::Environments => "environment",
            Self::Models => "model",
        }
    }

    /// The name under which definitions without one are kept, as the Azure clients have it.
    pub fn anonymous_name(self) -> &'static str {
        match self {
            Self::Components => "azureml_anonymous",
            Self::Data | Self::Models => "neap_anonymous",
            Self::Environments => "CliV2AnonymousEnvironment",
        }
    }
}

/// A definition to be registered as a version of an asset.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    pub collection: Collection,
    /// Without a name it is anonymous, and its version is made from its content.
    pub name: Option<String>,
    /// Without a version it gets the next one.
    pub version: Option<String>,
    pub body: Value,
}

/// Something to be done before a request can be sent. Each has one answer, a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Preparation {
    /// Upload a snapshot to run in; the answer is the id of the code version. `includes` are laid beside its files.
    Code { path: PathBuf, includes: Vec<PathBuf> },
    /// Upload to the default datastore; the answer is the path in it.
    Data { path: PathBuf },
    /// Upload as a build context; the answer is its URL.
    Context { path: PathBuf },
    /// Look up the newest version of a name; the answer is its id.
    Latest { collection: Collection, name: String },
    /// Register; the answer is the id of the version.
    Register(Registration),
}

/// A PUT, and what comes before it, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub name: String,
    /// Of an asset; `None` asks for the next one.
    pub version: Option<String>,
    pub body: Value,
    pub preparations: Vec<Preparation>,
}

impl Request {
    /// Puts the answer of preparation `number` wherever it is waited for.
    pub fn fill(&mut self, number: usize, answer: &str) {
        let mark = mark(number);
        replace(&mut self.body, &mark, answer);
        for later in self.preparations.iter_mut().skip(number + 1) {
            if let Preparation::Register(registration) = later {
                replace(&mut registration.body, &mark, answer);
            }
        }
    }
}

/// The preparations of a request that is being built. The same one is done once, however often it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Preparations {
    list: Vec<Preparation>,
}

impl Preparations {
    /// The mark of `preparation`'s answer.
    pub fn need(&mut self, preparation: Preparation) -> String {
        let number = self.list.iter().position(|known| *known == preparation).unwrap_or_else(|| {
            self.list.push(preparation);
            self.list.len() - 1
        });
        mark(number)
    }

    pub fn into_list(self) -> Vec<Preparation> {
        self.list
    }
}

/// A control character that no YAML document can hold keeps marks apart from what people write.
const EDGE: char = '\u{1}';

fn mark(number: usize) -> String {
    format!("{EDGE}{number}{EDGE}")
}

/// Whether a text begins with an answer that is still to come.
pub(crate) fn is_marked(text: &str) -> bool {
    text.starts_with(EDGE)
}

fn replace(value: &mut Value, mark: &str, answer: &str) {
    match value {
        Value::String(text) if text.contains(mark) => *text = text.replace(mark, answer),
        Value::Array(list) => list.iter_mut().for_each(|item| replace(item, mark, answer)),
        Value::Object(map) => map.values_mut().for_each(|item| replace(item, mark, answer)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Collection, Preparation, Preparations, Registration, Request};
    use serde_json::json;

    #[test]
    fn answers_reach_the_body_and_what_follows() {
        let mut preparations = Preparations::default();
        let code = Preparation::Code { path: "src".into(), includes: Vec::new() };
        let code_mark = preparations.need(code.clone());
        assert_eq!(preparations.need(code), code_mark, "the same folder is uploaded once");
        let component = preparations.need(Preparation::Register(Registration {
            collection: Collection::Components,
            name: None,
            version: None,
            body: json!({"code": format!("azureml:{code_mark}")}),
        }));
        let body = json!({"jobs": [{"componentId": component}, {"componentId": "other"}]});
        let mut request =
            Request { name: "j".into(), version: None, body, preparations: preparations.into_list() };
        assert_eq!(request.preparations.len(), 2);
        request.fill(0, "/codes/1");
        let Preparation::Register(registration) = &request.preparations[1] else { panic!("a registration") };
        assert_eq!(registration.body, json!({"code": "azureml:/codes/1"}));
        request.fill(1, "/components/2");
        assert_eq!(
            request.body,
            json!({"jobs": [{"componentId": "/components/2"}, {"componentId": "other"}]})
        );
    }
}
