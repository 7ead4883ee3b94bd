//! Why this client does not trust a server's certificate, in words: what changed, and what to do about it.

use std::path::Path;

/// What happened, and what to do next.
#[derive(Debug, PartialEq, Eq)]
pub struct Distrust {
    pub message: String,
    pub hint: String,
}

/// Reads what the TLS library said; none if it was not about the certificate.
pub fn explain(cause: &str, url: &str, bundle: &Path) -> Option<Distrust> {
    let bundle = bundle.display();
    let again = "run eval \"$(neap env)\" again; on another machine, copy identity/ca-bundle.pem from the server's data folder first";
    let (message, hint) = if cause.contains("NameConstraint") {
        (
            format!(
                "the server's certificate authority changed: the one in {bundle} does not vouch for the name in {url}, \
                 which the server got later"
            ),
            again.to_owned(),
        )
    } else if cause.contains("UnknownIssuer") || cause.contains("BadSignature") {
        (
            format!(
                "the server's certificate authority changed, or {url} is another server: {bundle} does not vouch for it"
            ),
            again.to_owned(),
        )
    } else if cause.contains("NotValidForName") || cause.contains("not valid for name") {
        (
            format!("the certificate of the server at {url} does not name that host: {cause}"),
            "use one of the names in its certificate, or start the server with --listen on this address"
                .to_owned(),
        )
    } else if cause.contains("Expired") || cause.contains("expired") || cause.contains("NotValidYet") {
        (
            format!("a certificate on the way to {url} is not valid at this time: {cause}"),
            format!("check the clock of this machine, then {again}"),
        )
    } else if cause.contains("certificate") {
        (format!("the certificate of the server at {url} is not trusted: {cause}"), again.to_owned())
    } else {
        return None;
    };
    Some(Distrust { message, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_words() {
        for (cause, expect) in [
            (
                "invalid peer certificate: UnknownIssuer",
                Some("authority changed, or https://h:1 is another server"),
            ),
            ("invalid peer certificate: BadSignature", Some("authority changed")),
            (
                "invalid peer certificate: Other(OtherError(NameConstraintViolation))",
                Some("does not vouch for the name in https://h:1"),
            ),
            (
                "invalid peer certificate: certificate not valid for name \"h\"",
                Some("does not name that host"),
            ),
            (
                "invalid peer certificate: certificate expired: verification time …",
                Some("not valid at this time"),
            ),
            ("invalid peer certificate: Revoked", Some("is not trusted")),
            ("tcp connect error: Connection refused", None),
        ] {
            let told = explain(cause, "https://h:1", Path::new("/b.pem"));
            assert_eq!(told.is_some(), expect.is_some(), "{cause}");
            if let (Some(told), Some(expect)) = (told, expect) {
                assert!(told.message.contains(expect), "{}", told.message);
            }
        }
    }
}
