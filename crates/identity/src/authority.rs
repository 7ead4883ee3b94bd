//! The local certificate authority: it certifies this server for its clients, and nodes for this
//! server. Its key never leaves the identity folder. It never speaks TLS itself.

mod root;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use self::root::Root;
use crate::{
    CERTIFICATE_BACKDATE_S, CSR_BYTES_MAX, Error, Result, SERVER_LIFETIME_S, SERVER_RENEW_BEFORE_S, bundle,
    files, random_bytes,
};

/// The server's certificate chain and key, as rustls takes them.
#[derive(Debug)]
pub struct ServerIdentity {
    /// Server certificate, then the authority's.
    pub chain: Vec<CertificateDer<'static>>,
    /// The server's private key.
    pub key: PrivateKeyDer<'static>,
    /// When the certificate ends, unix seconds.
    pub not_after_s: i64,
}

/// A certificate made for a node.
#[derive(Clone, Debug)]
pub struct NodeCertificate {
    /// The certificate, PEM.
    pub cert_pem: String,
    /// The authority's certificate, PEM: what the node trusts the server by.
    pub ca_pem: String,
    /// When the certificate ends, unix seconds.
    pub not_after_s: i64,
}

/// The local CA in its folder, and the server certificates made by it.
pub struct Authority {
    folder: PathBuf,
    hosts: Vec<String>,
    current: RwLock<Arc<Current>>,
    /// Once the bundle was written.
    bundle_source: Mutex<Option<BundleSource>>,
}

/// Where the public roots of the bundle came from, if not from the system.
#[derive(Clone)]
struct BundleSource(Option<PathBuf>);

/// What is replaced when it is renewed.
struct Current {
    root: Root,
    servers: Servers,
}

/// One key, and a certificate for each way to reach the server.
///
/// A client checks *every* name in a certificate against those that its copy of the authority lists. So a certificate
/// with a new name in it would be refused by clients with an older copy, although they use an old name. With a
/// certificate for each host name, and one for all addresses, they do not notice.
struct Servers {
    all: Arc<ServerIdentity>,
    addresses: Arc<ServerIdentity>,
    names: BTreeMap<String, Arc<ServerIdentity>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("folder", &self.folder)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Opens the authority in this folder or makes it, with a server certificate that names
    /// 127.0.0.1, ::1, localhost, this machine and `listen_hosts` (host names or addresses, no ports).
    /// The authority may vouch for these names and no others. It is renewed, with the same key, when it ends soon, lacks
    /// a name, or was made without limits by an earlier release.
    pub fn open(folder: &Path, listen_hosts: &[String], now_s: i64) -> Result<Self> {
        files::make_private_folder(folder)?;
        let hosts = server_hosts(listen_hosts);
        let current = RwLock::new(Arc::new(Current::open(folder, &hosts, now_s)?));
        Ok(Self { folder: folder.to_owned(), hosts, current, bundle_source: Mutex::new(None) })
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The host names and addresses that the server's certificate names.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.current().root.pem.clone()
    }

    /// The authority's certificate, DER: the only root by which node certificates are checked.
    #[must_use]
    pub fn ca_der(&self) -> CertificateDer<'static> {
        self.current().root.der.clone()
    }

    /// The server's chain and key as they are now, with all names.
    #[must_use]
    pub fn server(&self) -> Arc<ServerIdentity> {
        Arc::clone(&self.current().servers.all)
    }

    /// The chain and key for a client that asks for this host name; a client that uses an address asks for none.
    #[must_use]
    pub fn server_for(&self, name: Option<&str>) -> Arc<ServerIdentity> {
        let current = self.current();
        let servers = &current.servers;
        let found = match name {
            None => &servers.addresses,
            Some(name) => servers.names.get(&name.to_ascii_lowercase()).unwrap_or(&servers.all),
        };
        Arc::clone(found)
    }

    /// Replaces the server certificate and the authority's if they end soon; a bundle that was written is written
    /// again. True when there is a new one to load.
    pub fn renew_if_needed(&self, now_s: i64) -> Result<bool> {
        let current = self.current();
        if root::still_good(&current.root.der, &self.hosts, now_s)
            && still_good(&current.servers.all, &self.hosts, now_s)
        {
            return Ok(false);
        }
        let renewed = Current::open(&self.folder, &self.hosts, now_s)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(renewed);
        let source = self.bundle_source.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(BundleSource(roots)) = source {
            self.write_bundle(roots.as_deref())?;
        }
        Ok(true)
    }

    /// Certifies a node's key: common name `node-<id>`, for client authentication only, for
    /// `lifetime_s`. Whatever else the request asks for is not granted.
    pub fn issue_node(
        &self,
        csr_pem: &str,
        node: u64,
        lifetime_s: i64,
        now_s: i64,
    ) -> Result<NodeCertificate> {
        let refused = |detail: String| Error::Request { detail };
        if csr_pem.len() > CSR_BYTES_MAX {
            return Err(refused(format!("it is longer than {CSR_BYTES_MAX} bytes")));
        }
        let request =
            CertificateSigningRequestParams::from_pem(csr_pem).map_err(|e| refused(e.to_string()))?;
        let mut params = leaf(&format!("node-{node}"), lifetime_s, now_s)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let end = params.not_after.unix_timestamp();
        let current = self.current();
        let certificate = params
            .signed_by(&request.public_key, &current.root.issuer)
            .map_err(|e| refused(e.to_string()))?;
        Ok(NodeCertificate {
            cert_pem: certificate.pem(),
            ca_pem: current.root.pem.clone(),
            not_after_s: end,
        })
    }

    /// Writes `ca-bundle.pem`: the public roots (those in `already_set`, else the system's) and our
    /// CA. A machine without public roots gets a bundle of our CA alone.
    pub fn write_bundle(&self, already_set: Option<&Path>) -> Result<PathBuf> {
        let path = self.folder.join("ca-bundle.pem");
        *self.bundle_source.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(BundleSource(already_set.map(Path::to_owned)));
        // A variable that names our own bundle says nothing about the system's roots.
        let already_set = already_set.filter(|set| *set != path);
        let roots = bundle::system_roots(already_set);
        let current = self.current();
        bundle::write(&path, roots.as_deref(), &current.root.pem, &current.root.der)?;
        Ok(path)
    }
}

impl Current {
    fn open(folder: &Path, hosts: &[String], now_s: i64) -> Result<Self> {
        let root = root::open(folder, hosts, now_s)?;
        let all = match read_server(folder, &root.der)? {
            Some(server) if still_good(&server, hosts, now_s) => server,
            _ => issue_server(folder, &root, hosts, now_s)?,
        };
        let servers = Servers::of(all, &root, hosts, now_s)?;
        Ok(Self { root, servers })
    }
}

impl Servers {
    fn of(all: ServerIdentity, root: &Root, hosts: &[String], now_s: i64) -> Result<Self> {
        let pair =
            KeyPair::try_from(all.key.secret_der()).map_err(|e| Error::crypto("use the server's key", e))?;
        let lifetime_s = all.not_after_s - now_s;
        let part = |hosts: &[String]| {
            let certificate = certify_server(&pair, root, hosts, lifetime_s, now_s)?;
            Ok(Arc::new(ServerIdentity {
                chain: vec![certificate.der().clone(), root.der.clone()],
                key: all.key.clone_key(),
                not_after_s: all.not_after_s,
            }))
        };
        let (addresses, names): (Vec<String>, Vec<String>) =
            hosts.iter().cloned().partition(|host| host.parse::<IpAddr>().is_ok());
        let names = names
            .into_iter()
            .map(|name| Ok((name.clone(), part(std::slice::from_ref(&name))?)))
            .collect::<Result<_>>()?;
        Ok(Self { addresses: part(&addresses)?, names, all: Arc::new(all) })
    }
}

/// The node that a client certificate names.
///
/// # Assumptions
/// The TLS layer has checked the certificate against [`Authority::ca_der`]; only the name and the
/// purpose are read here.
#[must_use]
pub fn node_of(certificate: &[u8]) -> Option<u64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let purposes = parsed.extended_key_usage().ok()??;
    if !purposes.value.client_auth {
        return None;
    }
    let mut names = parsed.subject().iter_common_name();
    let text = names.next()?.as_str().ok()?.strip_prefix("node-")?;
    let node: u64 = text.parse().ok()?;
    (names.next().is_none() && node.to_string() == text).then_some(node)
}

fn read_server(folder: &Path, ca: &CertificateDer<'static>) -> Result<Option<ServerIdentity>> {
    let cert = files::read(&folder.join("server.pem"))?;
    let key = files::read(&folder.join("server.key"))?;
    let (Some(cert), Some(key)) = (cert, key) else {
        return Ok(None);
    };
    // The server certificate is ours to make again, so a damaged one is no error.
    let cert = CertificateDer::from_pem_slice(&cert).ok();
    let key = PrivateKeyDer::from_pem_slice(&key).ok();
    let (Some(cert), Some(key)) = (cert, key) else {
        return Ok(None);
    };
    let Some(not_after_s) = not_after_s(&cert).filter(|_| fits(&cert, &key, ca)) else {
        return Ok(None);
    };
    Ok(Some(ServerIdentity { chain: vec![cert, ca.clone()], key, not_after_s }))
}

/// Whether key and certificate belong together and to this CA: a crash between writing the one and
/// the other, or a CA that was replaced, must lead to a new certificate and not to failing handshakes.
fn fits(cert: &CertificateDer<'_>, key: &PrivateKeyDer<'_>, ca: &CertificateDer<'_>) -> bool {
    let parsed = X509Certificate::from_der(cert);
    let authority = X509Certificate::from_der(ca);
    let (Ok((_, parsed)), Ok((_, authority))) = (parsed, authority) else {
        return false;
    };
    let Ok(pair) = KeyPair::try_from(key.secret_der()) else {
        return false;
    };
    let issued_by = key_identifiers(&parsed).1;
    let own = key_identifiers(&authority).0;
    parsed.public_key().subject_public_key.data.as_ref() == pair.public_key_raw()
        && issued_by.is_some()
        && issued_by == own
}

/// Subject and authority key identifiers.
fn key_identifiers(certificate: &X509Certificate<'_>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    use x509_parser::extensions::ParsedExtension;
    let (mut own, mut by) = (None, None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => own = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                by = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            _ => {}
        }
    }
    (own, by)
}

fn still_good(server: &ServerIdentity, hosts: &[String], now_s: i64) -> bool {
    let named = server.chain.first().map(|cert| names_in(cert));
    server.not_after_s - now_s > SERVER_RENEW_BEFORE_S
        && named.is_some_and(|names| hosts.iter().all(|host| names.contains(host)))
}

fn names_in(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
            _ => None,
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(text).collect()
}

fn issue_server(folder: &Path, root: &Root, hosts: &[String], now_s: i64) -> Result<ServerIdentity> {
    let key = new_key()?;
    let certificate = certify_server(&key, root, hosts, SERVER_LIFETIME_S, now_s)?;
    files::write_private(&folder.join("server.key"), key.serialize_pem().as_bytes())?;
    files::write_public(&folder.join("server.pem"), certificate.pem().as_bytes())?;
    Ok(ServerIdentity {
        chain: vec![certificate.der().clone(), root.der.clone()],
        key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
        not_after_s: now_s.saturating_add(SERVER_LIFETIME_S),
    })
}

fn certify_server(
    key: &KeyPair,
    root: &Root,
    hosts: &[String],
    lifetime_s: i64,
    now_s: i64,
) -> Result<rcgen::Certificate> {
    let making = |e: rcgen::Error| Error::crypto("make the server's certificate", e);
    let mut params = leaf("Neap server", lifetime_s, now_s)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = hosts
        .iter()
        .map(|host| match host.parse::<IpAddr>() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => host.as_str().try_into().map(SanType::DnsName),
        })
        .collect::<std::result::Result<_, _>>()
        .map_err(making)?;
    params.signed_by(key, &root.issuer).map_err(making)
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| Error::crypto("make a certificate key", e))
}

fn named(common_name: &str, lifetime_s: i64, now_s: i64) -> Result<CertificateParams> {
    let at = |s: i64| {
        OffsetDateTime::from_unix_timestamp(s).map_err(|e| Error::crypto("state a certificate's validity", e))
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = at(now_s.saturating_sub(CERTIFICATE_BACKDATE_S))?;
    params.not_after = at(now_s.saturating_add(lifetime_s))?;
    let mut serial = random_bytes::<16>()?;
    // A serial number is a positive integer without leading zero.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn leaf(common_name: &str, lifetime_s: i64, now_s: i64) -> Result<CertificateParams> {
    let mut params = named(common_name, lifetime_s, now_s)?;
    // Strict verifiers want to be told which key signed.
    params.use_authority_key_identifier_extension = true;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn not_after_s(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// The names of the server certificate, each once, in a fixed order.
fn server_hosts(listen_hosts: &[String]) -> Vec<String> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"))
        .unwrap_or_default();
    let mut hosts: Vec<String> = ["127.0.0.1", "::1", "localhost"].map(str::to_owned).to_vec();
    let given = listen_hosts.iter().map(String::as_str);
    for host in given.chain([machine.trim()]) {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = match host.parse::<IpAddr>() {
            // "All addresses" is where we listen, not what we are called.
            Ok(address) if address.is_unspecified() => continue,
            Ok(address) => address.to_string(),
            Err(_) => host.to_ascii_lowercase(),
        };
        let usable = !host.is_empty() && host.is_ascii() && !host.contains(char::is_whitespace);
        if usable && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

#[cfg(test)]
mod tests;
