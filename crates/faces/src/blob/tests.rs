//! The face as a client sees it, one request at a time.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neap_storage::sas::PASS;
use neap_storage::{Bound, Grant, Permission, SasKey, Scope, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tower::ServiceExt;

use super::{BlobFace, router};

const NOW: i64 = 1_800_000_000;
const CONTAINER: &str = "/neapst1.blob.core.windows.net/cont";

struct Client {
    _folder: tempfile::TempDir,
    face: BlobFace,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Status and error code in one.
    fn said(&self) -> String {
        format!("{} {}", self.status.as_u16(), self.header("x-ms-error-code")).trim().to_owned()
    }
}

fn client() -> Client {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.create_container("neapst1", "cont").unwrap();
    let bearer = |headers: &HeaderMap, _: &axum::http::Uri| {
        headers.get(header::AUTHORIZATION).is_some_and(|value| value == "Bearer good")
    };
    let sas = Arc::new(SasKey::new(b"key"));
    let face = BlobFace::new(Arc::new(store), sas, Arc::new(bearer), Arc::new(|| NOW), Arc::new(|_| false));
    Client { _folder: folder, face }
}

impl Client {
    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(Method::try_from(method).unwrap()).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        let response = router(self.face.clone()).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 1 << 26).await.unwrap().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// With a good bearer token.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut all = vec![("authorization", "Bearer good")];
        all.extend_from_slice(headers);
        self.send(method, &format!("{CONTAINER}{path}"), &all, body).await
    }

    async fn put(&self, name: &str, content: &'static str) {
        let answer = self.ask("PUT", &format!("/{name}"), &[("x-ms-blob-type", "BlockBlob")], content).await;
        assert_eq!(answer.said(), "201");
    }

    fn sign(&self, scope: Scope, permissions: &[Permission]) -> String {
        let grant = Grant {
            account: "neapst1".into(),
            container: "cont".into(),
            scope,
            permissions: permissions.to_vec(),
            starts_s: None,
            expires_s: NOW + 60,
            bound: None,
            web_query: None,
        };
        self.face.sas.sign(&grant, NOW)
    }
}

#[tokio::test]
async fn a_blob_is_put_once_described_and_read() {
    let client = client();
    let new = [
        ("x-ms-blob-type", "BlockBlob"),
        ("if-none-match", "*"),
        ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        ("content-type", "text/plain"),
        ("x-ms-client-request-id", "abc"),
    ];
    assert_eq!(client.ask("HEAD", "/src/a%20b.py", &[], "").await.said(), "404 BlobNotFound");
    let put = client.ask("PUT", "/src/a%20b.py", &new, "hello").await;
    assert_eq!(put.said(), "201");
    assert_eq!(put.header("x-ms-client-request-id"), "abc");
    assert!(!put.header("x-ms-request-id").is_empty() && !put.header("x-ms-version").is_empty());
    assert_eq!(client.ask("PUT", "/src/a%20b.py", &new, "hello").await.said(), "409 BlobAlreadyExists");
    let head = client.ask("HEAD", "/src/a%20b.py", &[], "").await;
    for (name, value) in [
        ("content-length", "5"),
        ("content-type", "text/plain"),
        ("x-ms-blob-type", "BlockBlob"),
        ("etag", put.header("etag")),
        ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
    ] {
        assert_eq!(head.header(name), value, "{name}");
    }
    assert!(head.header("last-modified").ends_with(" GMT"), "{}", head.header("last-modified"));
    let get = client.ask("GET", "/src/a%20b.py", &[], "").await;
    assert_eq!((get.said().as_str(), get.text().as_str()), ("200", "hello"));
    let other = "/neapst1/.blob.core.windows.net/cont/src/a%20b.py";
    for path in ["/neapst1/cont/src/a%20b.py", other] {
        let answer = client.send("GET", path, &[("authorization", "Bearer good")], "").await;
        assert_eq!(answer.text(), "hello", "{path}");
    }
}

#[tokio::test]
async fn ranges_answer_as_the_clients_want() {
    let client = client();
    client.put("a", "0123456789").await;
    client.put("empty", "").await;
    let etag = client.ask("HEAD", "/a", &[], "").await.header("etag").to_owned();
    for (name, range, said, content_range, text) in [
        ("a", ("x-ms-range", "bytes=0-33554431"), "206", "bytes 0-9/10", "0123456789"),
        ("a", ("range", "bytes=2-4"), "206", "bytes 2-4/10", "234"),
        ("a", ("x-ms-range", "bytes=8-"), "206", "bytes 8-9/10", "89"),
        ("a", ("x-ms-range", "bytes=10-20"), "416 InvalidRange", "bytes */10", ""),
        ("empty", ("x-ms-range", "bytes=0-33554431"), "416 InvalidRange", "bytes */0", ""),
        ("a", ("x-ms-range", "nonsense"), "400 InvalidInput", "", ""),
    ] {
        let answer = client.ask("GET", &format!("/{name}"), &[range], "").await;
        assert_eq!(
            (answer.said().as_str(), answer.header("content-range")),
            (said, content_range),
            "{range:?}"
        );
        if answer.status.is_success() {
            assert_eq!(answer.text(), text);
        }
    }
    let empty = client.ask("GET", "/empty", &[], "").await;
    assert_eq!((empty.said().as_str(), empty.header("content-length")), ("200", "0"));
    for (condition, said) in [
        (("if-match", etag.as_str()), "200"),
        (("if-match", "\"0x0\""), "412 ConditionNotMet"),
        (("if-none-match", etag.as_str()), "304 ConditionNotMet"),
        (("if-none-match", "\"0x0\""), "200"),
    ] {
        assert_eq!(client.ask("GET", "/a", &[condition], "").await.said(), said, "{condition:?}");
    }
}

#[tokio::test]
async fn large_content_streams_through_unchanged() {
    let client = client();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
        content.chunks(70_000).map(|c| Ok(c.to_vec())).collect();
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    assert_eq!(client.ask("PUT", "/big", &[], body).await.said(), "201");
    assert_eq!(client.ask("GET", "/big", &[], "").await.body, content);
    let part = client.ask("GET", "/big", &[("x-ms-range", "bytes=1000-2000999")], "").await;
    assert_eq!(part.body, &content[1_000..2_001_000]);
}

#[tokio::test]
async fn content_that_was_cut_off_or_changed_makes_no_blob() {
    let client = client();
    let pieces = [Ok("half".to_owned()), Err(std::io::Error::other("gone"))];
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    assert_eq!(client.ask("PUT", "/a", &[], body).await.said(), "400 IncompleteBody");
    let wrong = [("content-md5", "XUFAKrxLKna5cZ2REBfFkg==")];
    assert_eq!(client.ask("PUT", "/a", &wrong, "other").await.said(), "400 Md5Mismatch");
    assert_eq!(client.ask("PUT", "/a", &[("content-md5", "x")], "other").await.said(), "400 InvalidMd5");
    let long = [("content-length", "6000000000")];
    assert_eq!(client.ask("PUT", "/a", &long, "").await.said(), "413 RequestBodyTooLarge");
    assert_eq!(client.ask("HEAD", "/a", &[], "").await.said(), "404 BlobNotFound");
}

#[tokio::test]
async fn blocks_become_a_blob() {
    let client = client();
    let id = |n: u32| STANDARD.encode(format!("{n:06}"));
    for n in [2, 0, 1] {
        let path = format!("/big?comp=block&blockid={}", id(n).replace('=', "%3D"));
        assert_eq!(client.ask("PUT", &path, &[], format!("<{n}>")).await.said(), "201");
    }
    let list = |ids: &[u32]| {
        let latest: String = ids.iter().map(|n| format!("<Latest>{}</Latest>", id(*n))).collect();
        format!("<?xml version='1.0' encoding='utf-8'?>\n<BlockList>{latest}</BlockList>")
    };
    let path = "/big?comp=blocklist";
    assert_eq!(client.ask("PUT", path, &[], list(&[0, 7])).await.said(), "400 InvalidBlockList");
    assert_eq!(client.ask("PUT", path, &[], "rubbish").await.said(), "400 InvalidXmlDocument");
    let meta = [("x-ms-meta-k", "v"), ("x-ms-blob-content-type", "text/x")];
    assert_eq!(client.ask("PUT", path, &meta, list(&[0, 1, 2])).await.said(), "201");
    let get = client.ask("GET", "/big", &[], "").await;
    assert_eq!(
        (get.text().as_str(), get.header("x-ms-meta-k"), get.header("content-type")),
        ("<0><1><2>", "v", "text/x")
    );
    assert_eq!(client.ask("PUT", "/big?comp=block&blockid=!", &[], "").await.said(), "400 InvalidInput");
}

#[tokio::test]
async fn metadata_is_set_and_read_and_blobs_are_deleted() {
    let client = client();
    client.put("a", "x").await;
    let headers =
        [("x-ms-meta-upload_status", "completed"), ("x-ms-meta-name", "n"), ("x-ms-meta-version", "1")];
    assert_eq!(client.ask("PUT", "/a?comp=metadata", &headers, "").await.said(), "200");
    for (method, path) in [("HEAD", "/a"), ("GET", "/a?comp=metadata")] {
        let answer = client.ask(method, path, &[], "").await;
        assert_eq!(answer.header("x-ms-meta-upload_status"), "completed", "{method} {path}");
    }
    let bad = [("x-ms-meta-a-b", "x")];
    assert_eq!(client.ask("PUT", "/a?comp=metadata", &bad, "").await.said(), "400 InvalidMetadata");
    assert_eq!(client.ask("DELETE", "/a", &[], "").await.said(), "202");
    assert_eq!(client.ask("DELETE", "/a", &[], "").await.said(), "404 BlobNotFound");
}

#[tokio::test]
async fn listings_have_order_groups_pages_and_escapes() {
    let client = client();
    for name in ["a%26b", "dir/x", "dir/y", "z"] {
        client.put(name, "1").await;
    }
    let meta = [("x-ms-meta-k", "<v>")];
    client.ask("PUT", "/z?comp=metadata", &meta, "").await;
    let all = client.ask("GET", "?restype=container&comp=list&include=metadata", &[], "").await.text();
    let at = |part: &str| all.find(part).unwrap_or_else(|| panic!("{part} in {all}"));
    assert!(at("<Name>a&amp;b</Name>") < at("<Name>dir/x</Name>"));
    assert!(at("<Content-Length>1</Content-Length>") < at("<BlobType>BlockBlob</BlobType>"));
    at("<Metadata><k>&lt;v&gt;</k></Metadata>");
    at("<NextMarker></NextMarker>");
    let mut marker = String::new();
    let mut seen = String::new();
    for _ in 0..3 {
        let path = format!("?restype=container&comp=list&delimiter=%2F&maxresults=1&marker={marker}");
        let text = client.ask("GET", &path, &[], "").await.text();
        let between =
            |from: &str, to: &str| text.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned();
        seen += &format!("{} ", between("<Name>", "</Name>"));
        marker = between("<NextMarker>", "</NextMarker>");
    }
    assert_eq!((seen.as_str(), marker.as_str()), ("a&amp;b dir/ z ", ""));
    let missing = client
        .send("GET", "/neapst1/none?restype=container&comp=list", &[("authorization", "Bearer good")], "")
        .await;
    assert_eq!(missing.said(), "404 ContainerNotFound");
}

#[tokio::test]
async fn only_who_may_gets_in() {
    let client = client();
    client.put("a", "x").await;
    let blob = format!("{CONTAINER}/a");
    let list = format!("{CONTAINER}?restype=container&comp=list");
    let read = client.sign(Scope::Container, &[Permission::Read, Permission::List]);
    let create = client.sign(Scope::Container, &[Permission::Create]);
    let one = client.sign(Scope::Blob("a".into()), &[Permission::Read]);
    let with =
        |path: &str, query: &str| format!("{path}{}{query}", if path.contains('?') { '&' } else { '?' });
    for (method, path, authorization, said) in [
        ("GET", blob.clone(), None, "401 NoAuthenticationInformation"),
        ("GET", blob.clone(), Some("Bearer bad"), "403 AuthenticationFailed"),
        ("GET", blob.clone(), Some("SharedKey a:b"), "403 AuthenticationFailed"),
        ("GET", with(&blob, &read), None, "200"),
        ("GET", with(&list, &read), None, "200"),
        ("PUT", with(&blob, &read), None, "403 AuthorizationPermissionMismatch"),
        ("DELETE", with(&blob, &read), None, "403 AuthorizationPermissionMismatch"),
        ("GET", with(&blob, &read.replace("sp=rl", "sp=rw")), None, "403 AuthenticationFailed"),
        ("PUT", with(&blob, &create), None, "409 BlobAlreadyExists"),
        ("PUT", with(&format!("{CONTAINER}/new"), &create), None, "201"),
        (
            "PUT",
            with(&format!("{CONTAINER}/new?comp=metadata"), &create),
            None,
            "403 AuthorizationPermissionMismatch",
        ),
        ("GET", with(&blob, &one), None, "200"),
        ("GET", with(&format!("{CONTAINER}/new"), &one), None, "403 AuthenticationFailed"),
        ("GET", with(&list, &one), None, "403 AuthenticationFailed"),
        // A signature that does not fit is not made good by a token.
        ("GET", with(&blob, "sig=AAAA&sr=c"), Some("Bearer good"), "403 AuthenticationFailed"),
    ] {
        let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
        let answer = client.send(method, &path, &headers, "").await;
        assert_eq!(answer.said(), said, "{method} {path}");
        if answer.status.is_client_error() {
            assert!(answer.text().contains("<Code>"), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn containers_are_made_and_other_operations_are_refused_in_words() {
    let client = client();
    let send = |method: &'static str, path: &'static str| {
        client.send(method, path, &[("authorization", "Bearer good")], "")
    };
    for (method, path, said) in [
        ("PUT", "/neapst2/other?restype=container", "201"),
        ("PUT", "/neapst2/other?restype=container", "409 ContainerAlreadyExists"),
        ("HEAD", "/neapst2/other?restype=container", "200"),
        ("HEAD", "/neapst2/none?restype=container", "404 ContainerNotFound"),
        ("PUT", "/neapst2/BAD?restype=container", "400 InvalidResourceName"),
        ("DELETE", "/neapst2/other?restype=container", "400 UnsupportedOperation"),
        ("PUT", "/neapst1/cont/a?comp=lease", "400 UnsupportedOperation"),
        ("GET", "/neapst1/cont/%FF", "400 InvalidUri"),
        ("GET", "/elsewhere/cont/a", "404 ResourceNotFound"),
        ("GET", "/", "404 ResourceNotFound"),
    ] {
        assert_eq!(send(method, path).await.said(), said, "{method} {path}");
    }
    let page = [("x-ms-blob-type", "PageBlob")];
    assert_eq!(client.ask("PUT", "/a", &page, "").await.said(), "400 UnsupportedOperation");
    let copy = [("x-ms-copy-source", "https://x")];
    assert_eq!(client.ask("PUT", "/a", &copy, "").await.said(), "400 UnsupportedOperation");
}

#[tokio::test]
async fn names_stay_in_their_container() {
    let client = client();
    for name in ["..%2F..%2Fescape", "a//b", "a/", "%2E%2E/x", "a@d"] {
        client.put(name, "inside").await;
        assert_eq!(client.ask("GET", &format!("/{name}"), &[], "").await.text(), "inside", "{name}");
    }
    let all = client.ask("GET", "?restype=container&comp=list", &[], "").await.text();
    assert!(all.contains("<Name>../../escape</Name>"), "{all}");
}

const JOB: &str = "/neapst1/azureml/ExperimentRun/dcid.j";

/// A grant for an attempt's own folder, its node's pass included; and whether that attempt lives.
fn attempt(client: &mut Client, node: Option<u64>) -> (String, Arc<AtomicBool>) {
    use Permission::{Create, List, Read, Write};
    client.face.store.create_container("neapst1", "azureml").unwrap();
    let lives = Arc::new(AtomicBool::new(true));
    let seen = lives.clone();
    client.face.is_live = Arc::new(move |bound| {
        (bound.job, bound.attempt) == (7, 1) && bound.node == node && seen.load(Ordering::SeqCst)
    });
    let grant = Grant {
        account: "neapst1".into(),
        container: "azureml".into(),
        scope: Scope::Directory("ExperimentRun/dcid.j".into()),
        permissions: vec![Read, List, Create, Write],
        starts_s: None,
        expires_s: NOW + 60,
        bound: Some(Bound { job: 7, attempt: 1, node }),
        web_query: None,
    };
    let pass = client.face.sas.pass(5, NOW + 60);
    (format!("{}&{PASS}={pass}", client.face.sas.sign(&grant, NOW)), lives)
}

#[tokio::test]
async fn what_is_signed_for_an_attempt_dies_with_it() {
    for node in [Some(5), None] {
        let mut client = client();
        let (signed, lives) = attempt(&mut client, node);
        let at = |name: &str| format!("{JOB}/{name}?{signed}");
        let block = [("x-ms-blob-type", "BlockBlob")];
        assert_eq!(client.send("PUT", &at("outputs/a"), &block, "1").await.said(), "201");
        assert_eq!(client.send("GET", &at("outputs/a"), &[], "").await.text(), "1");
        lives.store(false, Ordering::SeqCst);
        let list =
            format!("/neapst1/azureml?restype=container&comp=list&prefix=ExperimentRun/dcid.j/&{signed}");
        for (method, path) in [
            ("PUT", at("outputs/b")),
            ("PUT", format!("{}&comp=block&blockid=AAAA", at("outputs/b"))),
            ("PUT", format!("{}&comp=blocklist", at("outputs/b"))),
            ("PUT", format!("{}&comp=metadata", at("outputs/a"))),
            ("GET", at("outputs/a")),
            ("HEAD", at("outputs/a")),
            ("GET", list),
        ] {
            let answer = client.send(method, &path, &block, "2").await;
            assert_eq!(answer.said(), "403 AttemptOver", "{method} {path}");
        }
        let there =
            client.send("GET", &format!("{JOB}/outputs/b"), &[("authorization", "Bearer good")], "").await;
        assert_eq!(there.said(), "404 BlobNotFound");
    }
}

#[tokio::test]
async fn an_upload_that_an_attempts_end_overtakes_stores_nothing() {
    let mut client = client();
    let (signed, lives) = attempt(&mut client, Some(5));
    let ended = lives.clone();
    let last = futures_util::stream::once(async move {
        ended.store(false, Ordering::SeqCst);
        Ok::<_, std::io::Error>("late")
    });
    let block = [("x-ms-blob-type", "BlockBlob")];
    let answer =
        client.send("PUT", &format!("{JOB}/outputs/a?{signed}"), &block, Body::from_stream(last)).await;
    assert_eq!(answer.said(), "403 AttemptOver");
    let there =
        client.send("GET", &format!("{JOB}/outputs/a"), &[("authorization", "Bearer good")], "").await;
    assert_eq!(there.said(), "404 BlobNotFound");
}

#[tokio::test]
async fn an_attempt_does_not_write_its_own_log_and_needs_its_nodes_pass() {
    let mut client = client();
    let (signed, _lives) = attempt(&mut client, Some(5));
    let block = [("x-ms-blob-type", "BlockBlob")];
    for name in ["user_logs/std_log.txt", "user_logs/x/y", "%75ser_logs/std_log.txt"] {
        let answer = client.send("PUT", &format!("{JOB}/{name}?{signed}"), &block, "forged").await;
        assert_eq!(answer.said(), "403 AuthorizationPermissionMismatch", "{name}");
    }
    assert_eq!(
        client.send("PUT", &format!("{JOB}/outputs/user_logs/a?{signed}"), &block, "1").await.said(),
        "201"
    );
    let (without, _) = signed.split_once(&format!("&{PASS}=")).unwrap();
    let other = client.face.sas.pass(6, NOW + 60);
    let old = client.face.sas.pass(5, NOW);
    for query in [without.to_owned(), format!("{without}&{PASS}={other}"), format!("{without}&{PASS}={old}")]
    {
        let answer = client.send("GET", &format!("{JOB}/outputs/a?{query}"), &[], "").await;
        assert_eq!(answer.said(), "403 AttemptUrlExpired", "{query}");
    }
}

#[tokio::test]
async fn no_browser_takes_a_blob_for_a_page() {
    let client = client();
    let html = [("x-ms-blob-type", "BlockBlob"), ("content-type", "text/html")];
    assert_eq!(client.ask("PUT", "/page", &html, "<script>alert(1)</script>").await.said(), "201");
    for (method, path) in
        [("GET", "/page"), ("HEAD", "/page"), ("GET", "/none"), ("GET", "?restype=container&comp=list")]
    {
        let answer = client.ask(method, path, &[], "").await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(answer.header("content-security-policy").contains("sandbox"), "{path}");
        assert_eq!(answer.header("set-cookie"), "", "{path}");
        let expected = if path == "/page" { "attachment" } else { "" };
        assert_eq!(answer.header("content-disposition"), expected, "{path}");
    }
}

#[tokio::test]
async fn names_elsewhere_do_not_climb() {
    let client = client();
    let bearer = [("authorization", "Bearer good")];
    for path in [
        "/neapst1/~file/a/../../etc/passwd",
        "/neapst1/~file/a/%2e%2e/x",
        "/neapst1/~file?restype=container&comp=list&prefix=a/../",
    ] {
        assert_eq!(client.send("GET", path, &bearer, "").await.said(), "400 InvalidResourceName", "{path}");
    }
}

#[tokio::test]
async fn an_address_elsewhere_is_opened_by_its_own_signature_only() {
    let client = client();
    let sign = |container: &str, name: &str, web_query: Option<&str>| {
        let grant = Grant {
            account: "neapst1".into(),
            container: container.into(),
            scope: Scope::Blob(name.into()),
            permissions: vec![Permission::Read],
            starts_s: None,
            expires_s: NOW + 60,
            bound: None,
            web_query: web_query.map(str::to_owned),
        };
        client.face.sas.sign(&grant, NOW)
    };
    let good = [("authorization", "Bearer good")];
    for container in ["~http", "~https", "~azure", "~s3"] {
        let path = format!("/neapst1/{container}/h/a");
        assert_eq!(
            client.send("GET", &path, &good, "").await.said(),
            "403 AuthorizationFailure",
            "{container}"
        );
        assert_eq!(client.send("GET", &path, &[], "").await.said(), "401 NoAuthenticationInformation");
    }
    // There is no opener here: what gets past the signature finds nothing.
    let (plain, with_query) = (sign("~https", "h/a", None), sign("~https", "h/a", Some("v=1")));
    for (path, said) in [
        (format!("/neapst1/~https/h/a?{plain}"), "404 ResourceNotFound"),
        (format!("/neapst1/~https/h/b?{plain}"), "403 AuthenticationFailed"),
        (format!("/neapst1/~https/h/a?{plain}&neap-web-query=v%3D1"), "403 AuthenticationFailed"),
        (format!("/neapst1/~https/h/a?{with_query}"), "404 ResourceNotFound"),
        (format!("/neapst1/~https/h/a?{}", with_query.replace("v%3D1", "v%3D2")), "403 AuthenticationFailed"),
    ] {
        assert_eq!(client.send("GET", &path, &[], "").await.said(), said, "{path}");
    }
}
