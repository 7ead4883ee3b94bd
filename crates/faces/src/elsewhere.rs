//! Data that does not lie in the server's own store: what of this machine may be reached, which addresses stand for
//! local copies, and how a datastore's record becomes a store that can be asked.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neap_control::{SecretError, Secrets};
use neap_core::documents::AssetDocument;
use neap_core::secrets::references;
use neap_core::{Code, Problem, Refusal, WorkspaceId};
use neap_storage::foreign::{
    self, AzureCredential, AzureStore, Definition, Folder, Foreign, S3Credential, S3Store, Web,
};
use serde_json::Value;

use crate::app::{App, internal, unreadable};
use crate::arm::errors::bad;
use crate::arm::jobs::secrets::missing;

pub(crate) const DATASTORE: &str = "datastore";
/// A datastore is not versioned; the ledger's assets are.
pub(crate) const DATASTORE_VERSION: &str = "1";
/// Neap's own kinds, which Azure ML has no word for.
pub(crate) const S3_TYPE: &str = "S3";
pub(crate) const FOLDER_TYPE: &str = "LocalFolder";
const AZURE_HOST: &str = "core.windows.net";

/// What the configuration says about data.
#[derive(Clone, Debug, Default)]
pub struct DataRules {
    /// Folders of this machine that jobs may read.
    pub inputs_allow: Vec<PathBuf>,
    /// Folders of this machine that jobs may write.
    pub outputs_allow: Vec<PathBuf>,
    /// Beginnings of addresses, and the local copies of what lies below them.
    pub inputs_map: Vec<(String, PathBuf)>,
}

/// The rules, and the client for what lies elsewhere.
#[derive(Clone, Debug, Default)]
pub struct DataAccess {
    pub rules: DataRules,
    /// Without it only this machine's folders are reached.
    pub http: Option<foreign::HttpClient>,
}

impl DataRules {
    /// The local copy of what an address names: the longest beginning counts.
    pub(crate) fn mapped(&self, uri: &str) -> Option<PathBuf> {
        let bare = uri.split(['?', '#']).next().unwrap_or(uri);
        let below = |prefix: &str| {
            let rest = bare.strip_prefix(prefix)?;
            (prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        let fits = self.inputs_map.iter().filter_map(|(prefix, to)| Some((prefix.len(), below(prefix)?, to)));
        let (_, rest, to) = fits.max_by_key(|(length, ..)| *length)?;
        let rest = percent_encoding::percent_decode_str(rest.trim_start_matches('/')).decode_utf8().ok()?;
        if !crate::workspace_files::is_safe(&rest) {
            return None;
        }
        Some(if rest.is_empty() { to.clone() } else { to.join(&*rest) })
    }

    /// The folder (or single file) that makes this path readable.
    pub(crate) fn readable_root(&self, path: &Path) -> Option<&Path> {
        let mapped = self.inputs_map.iter().map(|(_, to)| to);
        let roots = self.inputs_allow.iter().chain(&self.outputs_allow).chain(mapped);
        roots.map(PathBuf::as_path).find(|root| path.starts_with(root))
    }

    pub(crate) fn writable_root(&self, path: &Path) -> Option<&Path> {
        self.outputs_allow.iter().map(PathBuf::as_path).find(|root| path.starts_with(root))
    }
}

/// A place elsewhere: the store, what all names in it begin with as the blob face shows them, and the name asked for.
#[derive(Debug)]
pub(crate) struct Opened {
    pub store: Foreign,
    pub base: String,
    pub name: String,
}

/// Opens what a foreign container (see `neap_storage::foreign`) and a name in it stand for.
pub(crate) fn open(
    app: &App,
    account: &str,
    container: &str,
    name: &str,
    web_query: Option<&str>,
    write: bool,
) -> Result<Opened, Refusal> {
    let bad = |message: String| Refusal::because(Code::BadArgument, message);
    let http = || {
        let none = || Refusal::because(Code::NotSupported, "This server reaches no other machines.");
        app.data.http.as_ref().ok_or_else(none)
    };
    let split = |parts: usize| {
        let mut at = 0;
        for _ in 0..parts {
            at += name[at..]
                .find('/')
                .ok_or_else(|| bad(format!("'{name}' is not a place in '{container}'.")))?
                + 1;
        }
        Ok::<_, Refusal>((name[..at].to_owned(), name[at..].to_owned()))
    };
    let failed = |e: foreign::Error| internal(format!("{e}."));
    if let Some(name_of_store) = foreign::datastore_of_container(container) {
        let workspace = account.strip_prefix("neapst").and_then(|id| id.parse().ok()).map(WorkspaceId);
        let workspace = workspace.ok_or_else(|| bad(format!("'{account}' is no account of a workspace.")))?;
        let definition = datastore(app, workspace, name_of_store)?;
        let store = match &definition {
            Definition::Folder(path) => {
                let rules = &app.data.rules;
                let allowed = if write { rules.writable_root(path) } else { rules.readable_root(path) };
                allowed.ok_or_else(|| not_allowed(path, write))?;
                Foreign::Folder(Folder::new(path.clone()))
            }
            Definition::Azure(_) | Definition::S3(_) => {
                Foreign::open(&definition, http()?).map_err(failed)?
            }
        };
        return Ok(Opened { store, base: String::new(), name: name.to_owned() });
    }
    match container {
        foreign::FILE => {
            let path = PathBuf::from(format!("/{name}"));
            let rules = &app.data.rules;
            let root = if write { rules.writable_root(&path) } else { rules.readable_root(&path) };
            let root = root.ok_or_else(|| not_allowed(&path, write))?;
            let root = if root.is_file() { root.parent().unwrap_or(root) } else { root };
            let base = format!("{}/", root.display().to_string().trim_matches('/'));
            let name = name.strip_prefix(&base).unwrap_or_default().to_owned();
            Ok(Opened { store: Foreign::Folder(Folder::new(root.to_owned())), base, name })
        }
        foreign::HTTP | foreign::HTTPS => {
            let (base, name) = split(1)?;
            let scheme = container.trim_start_matches('~');
            let origin = format!("{scheme}://{}", base.trim_end_matches('/'));
            let web = Web::new(http()?.clone(), origin, web_query.map(str::to_owned));
            Ok(Opened { store: Foreign::Web(web), base, name })
        }
        foreign::AZURE => {
            let (base, name) = split(2)?;
            let (account, container) = base.trim_end_matches('/').split_once('/').unwrap_or_default();
            let definition = Definition::Azure(AzureStore {
                account: account.into(),
                container: container.into(),
                endpoint: None,
                credential: AzureCredential::Anonymous,
            });
            Ok(Opened { store: Foreign::open(&definition, http()?).map_err(failed)?, base, name })
        }
        foreign::S3 => {
            let (base, name) = split(1)?;
            let definition = Definition::S3(S3Store {
                bucket: base.trim_end_matches('/').into(),
                region: "us-east-1".into(),
                endpoint: None,
                credential: None,
            });
            Ok(Opened { store: Foreign::open(&definition, http()?).map_err(failed)?, base, name })
        }
        _ => Err(bad(format!("There is no container '{container}'."))),
    }
}

fn not_allowed(path: &Path, write: bool) -> Refusal {
    let list = if write { "outputs.allow" } else { "inputs.allow" };
    let message =
        format!("'{}' is not below a folder of {list} in the server's configuration.", path.display());
    Refusal::because(Code::AuthorizationFailed, message)
}

fn datastore(app: &App, workspace: WorkspaceId, name: &str) -> Result<Definition, Refusal> {
    let row =
        app.control.reader().asset(workspace, DATASTORE, name, DATASTORE_VERSION).map_err(unreadable)?;
    let row = row.ok_or_else(|| {
        Refusal::because(Code::ResourceNotFound, format!("There is no datastore '{name}' in this workspace."))
    })?;
    let document: AssetDocument = app.document(&row.document)?;
    let mut secrets = opened_secrets(app, workspace, name, &document)?;
    if let Some(secrets) = &mut secrets {
        let of_workspace = Secrets { reader: app.control.reader(), vault: &app.vault, workspace };
        fill_credentials(secrets, &of_workspace)
            .map_err(|e| Refusal::because(Code::SecretNotFound, format!("The datastore '{name}': {e}.")))?;
    }
    definition(&document.properties, secrets.as_ref())
        .map_err(|why| Refusal::because(Code::NotSupported, format!("The datastore '{name}': {why}")))
}

/// Puts the values of secrets into credentials. Nobody but the store is shown the result.
fn fill_credentials(credentials: &mut Value, secrets: &Secrets<'_>) -> Result<(), SecretError> {
    for text in credentials.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
        if let Value::String(text) = text {
            *text = secrets.fill(text, &mut Vec::new())?;
        }
    }
    Ok(())
}

/// What is wrong with the references to secrets in credentials as they were sent.
pub(crate) fn check_credentials(
    app: &App,
    workspace: WorkspaceId,
    datastore: &str,
    credentials: &Value,
) -> Result<Vec<Problem>, Refusal> {
    let secrets = Secrets { reader: app.control.reader(), vault: &app.vault, workspace };
    let mut problems = Vec::new();
    for (key, text) in credentials.as_object().into_iter().flatten() {
        let at = format!("properties.credentials.secrets.{key}");
        match references(text.as_str().unwrap_or_default()) {
            Err(why) => problems.push(bad(format!("The datastore '{datastore}', '{key}': {why}"), &at)),
            Ok(names) => {
                for name in names {
                    if !secrets.has(name).map_err(|e| internal(e.to_string()))? {
                        problems
                            .push(missing(&format!("'{key}' of the datastore '{datastore}'"), name).at(&at));
                    }
                }
            }
        }
    }
    Ok(problems)
}

pub(crate) fn vault_name(workspace: WorkspaceId, datastore: &str) -> String {
    format!("workspace/{workspace}/datastore/{}", datastore.to_lowercase())
}

/// A datastore's secrets in the clear, for the server's own use and for `listSecrets`.
pub(crate) fn opened_secrets(
    app: &App,
    workspace: WorkspaceId,
    name: &str,
    document: &AssetDocument,
) -> Result<Option<Value>, Refusal> {
    let Some(sealed) = &document.sealed_secret else { return Ok(None) };
    let unusable = |e: &dyn std::fmt::Display| internal(format!("A sealed secret cannot be read: {e}."));
    let sealed = STANDARD.decode(sealed).map_err(|e| unusable(&e))?;
    let opened = app.vault.open_document(&vault_name(workspace, name), &sealed).map_err(|e| unusable(&e))?;
    serde_json::from_slice(&opened).map(Some).map_err(|e| unusable(&e))
}

/// What a datastore's properties and secrets say, or why nothing can be done with it.
pub(crate) fn definition(properties: &Value, secrets: Option<&Value>) -> Result<Definition, String> {
    let text = |key: &str| properties[key].as_str().filter(|text| !text.is_empty());
    let need = |key: &str| text(key).map(str::to_owned).ok_or_else(|| format!("it has no '{key}'."));
    let secret =
        |key: &str| secrets.and_then(|secrets| secrets[key].as_str()).filter(|text| !text.is_empty());
    let kind = text("datastoreType").unwrap_or_default();
    match kind {
        "AzureBlob" | "AzureDataLakeGen2" => {
            let account = need("accountName")?;
            let container = need(if kind == "AzureBlob" { "containerName" } else { "filesystem" })?;
            Ok(Definition::Azure(AzureStore {
                endpoint: azure_endpoint(&account, text("endpoint"), text("protocol")),
                credential: azure_credential(&properties["credentials"], secret)?,
                account,
                container,
            }))
        }
        S3_TYPE => {
            let credential = match (secret("accessKeyId"), secret("secretAccessKey")) {
                (Some(key_id), Some(key)) => Some(S3Credential {
                    key_id: key_id.into(),
                    secret: key.into(),
                    token: secret("sessionToken").map(str::to_owned),
                }),
                (None, None) => None,
                _ => return Err("'accessKeyId' and 'secretAccessKey' are needed both, or neither.".into()),
            };
            Ok(Definition::S3(S3Store {
                bucket: need("bucket")?,
                region: text("region").unwrap_or("us-east-1").into(),
                endpoint: text("endpoint").map(str::to_owned),
                credential,
            }))
        }
        FOLDER_TYPE => {
            let path = PathBuf::from(need("path")?);
            if !path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir) {
                return Err(format!("'{}' is not an absolute path without '..'.", path.display()));
            }
            Ok(Definition::Folder(path))
        }
        other => Err(format!(
            "jobs cannot read or write a datastore of the type '{other}'; AzureBlob, AzureDataLakeGen2, {S3_TYPE} and {FOLDER_TYPE} they can."
        )),
    }
}

/// Azure's own where the endpoint is its suffix; a host and port (an emulator, a gateway) is taken as it is, with the
/// account as the first part of the path.
fn azure_endpoint(account: &str, endpoint: Option<&str>, protocol: Option<&str>) -> Option<String> {
    let endpoint = endpoint.unwrap_or(AZURE_HOST);
    let protocol = protocol.unwrap_or("https");
    if endpoint.starts_with("http://") || endpoint.starts_with("https://") {
        return Some(format!("{}/{account}", endpoint.trim_end_matches('/')));
    }
    let is_host =
        endpoint.contains(':') || endpoint == "localhost" || endpoint.parse::<std::net::IpAddr>().is_ok();
    if is_host {
        return Some(format!("{protocol}://{endpoint}/{account}"));
    }
    (endpoint != AZURE_HOST).then(|| format!("{protocol}://{account}.blob.{endpoint}"))
}

fn azure_credential<'a>(
    stated: &Value,
    secret: impl Fn(&str) -> Option<&'a str>,
) -> Result<AzureCredential, String> {
    let missing = |what: &str| format!("its credentials have no '{what}'.");
    let text = |key: &str| stated[key].as_str().map(str::to_owned);
    match stated["credentialsType"].as_str().unwrap_or("None") {
        "AccountKey" => {
            secret("key").map(|key| AzureCredential::AccountKey(key.into())).ok_or_else(|| missing("key"))
        }
        "Sas" => {
            secret("sasToken").map(|sas| AzureCredential::Sas(sas.into())).ok_or_else(|| missing("sasToken"))
        }
        "ServicePrincipal" => Ok(AzureCredential::ServicePrincipal {
            tenant: text("tenantId").ok_or_else(|| missing("tenantId"))?,
            client: text("clientId").ok_or_else(|| missing("clientId"))?,
            secret: secret("clientSecret").ok_or_else(|| missing("clientSecret"))?.into(),
            authority: text("authorityUrl"),
        }),
        "None" => Ok(AzureCredential::Anonymous),
        other => Err(format!(
            "credentials of the type '{other}' are not supported: AccountKey, Sas, ServicePrincipal and None are."
        )),
    }
}

/// Whether a datastore of these properties is this Azure container.
pub(crate) fn is_azure_container(properties: &Value, account: &str, container: &str) -> bool {
    let same = |key: &str, value: &str| {
        properties[key].as_str().is_some_and(|text| text.eq_ignore_ascii_case(value))
    };
    same("accountName", account) && (same("containerName", container) || same("filesystem", container))
}

pub(crate) fn is_bucket(properties: &Value, bucket: &str) -> bool {
    properties["datastoreType"] == S3_TYPE && properties["bucket"] == bucket
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_mapped_by_their_longest_beginning() {
        let rules = DataRules {
            inputs_map: vec![
                ("https://h/data".into(), "/srv/a".into()),
                ("https://h/data/deep/".into(), "/srv/b".into()),
                ("wasbs://c@a.blob.core.windows.net/".into(), "/srv/c".into()),
            ],
            ..DataRules::default()
        };
        for (uri, expect) in [
            ("https://h/data", Some("/srv/a")),
            ("https://h/data/x%20y.csv?sv=1", Some("/srv/a/x y.csv")),
            ("https://h/database", None),
            ("https://h/data/deep/x", Some("/srv/b/x")),
            ("https://h/data/../x", None),
            ("wasbs://c@a.blob.core.windows.net/p/q", Some("/srv/c/p/q")),
            ("s3://b/x", None),
        ] {
            assert_eq!(rules.mapped(uri).as_deref(), expect.map(Path::new), "{uri}");
        }
        assert_eq!(rules.readable_root(Path::new("/srv/a/x")), Some(Path::new("/srv/a")));
        assert_eq!(rules.readable_root(Path::new("/srv/ab")), None);
        assert_eq!(rules.writable_root(Path::new("/srv/a/x")), None);
    }

    #[test]
    fn datastores_are_read() {
        let read = |properties: Value, secrets: Option<Value>| {
            definition(&properties, secrets.as_ref()).map(|found| format!("{found:?}"))
        };
        let blob = |endpoint: &str| json!({"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "endpoint": endpoint, "protocol": "http", "credentials": {"credentialsType": "AccountKey"}});
        let key = || Some(json!({"key": "secretkey"}));
        let shown = read(blob("127.0.0.1:10000"), key()).unwrap();
        assert!(shown.contains("http://127.0.0.1:10000/a") && !shown.contains("secretkey"), "{shown}");
        assert!(read(blob("core.windows.net"), key()).unwrap().contains("endpoint: None"));
        assert!(
            read(blob("core.chinacloudapi.cn"), key())
                .unwrap()
                .contains("http://a.blob.core.chinacloudapi.cn")
        );
        assert!(read(blob("core.windows.net"), None).unwrap_err().contains("'key'"));
        let s3 = json!({"datastoreType": "S3", "bucket": "b"});
        assert!(read(s3.clone(), None).unwrap().contains("us-east-1"));
        assert!(read(s3, Some(json!({"accessKeyId": "x"}))).is_err());
        assert!(read(json!({"datastoreType": "LocalFolder", "path": "/srv/x"}), None).is_ok());
        assert!(read(json!({"datastoreType": "LocalFolder", "path": "/srv/../etc"}), None).is_err());
        assert!(read(json!({"datastoreType": "AzureFile"}), None).unwrap_err().contains("AzureFile"));
    }
}
