//! A limit on answers that a library reads into memory: listings, tokens and error messages. Content streams.

use http_body_util::{BodyExt, Limited};
use object_store::client::{HttpError, HttpErrorKind, HttpResponse, HttpResponseBody};

use crate::ELSEWHERE_ANSWER_BYTES_MAX;

#[derive(Debug, thiserror::Error)]
#[error("the answer has more than {ELSEWHERE_ANSWER_BYTES_MAX} bytes")]
struct TooLong;

/// Whether a query asks Azure or S3 for a listing, which is read whole.
pub(super) fn is_listing(query: Option<&str>) -> bool {
    let mut parts = query.unwrap_or_default().split('&');
    parts.any(|part| part == "comp=list" || part.starts_with("list-type"))
}

pub(super) fn limited(answer: HttpResponse) -> HttpResponse {
    let (parts, body) = answer.into_parts();
    let body =
        Limited::new(body, ELSEWHERE_ANSWER_BYTES_MAX).map_err(|error| match error.downcast::<HttpError>() {
            Ok(error) => *error,
            Err(_) => HttpError::new(HttpErrorKind::Unknown, TooLong),
        });
    HttpResponse::from_parts(parts, HttpResponseBody::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_long_answer_ends_in_an_error() {
        for (bytes, expect) in [(ELSEWHERE_ANSWER_BYTES_MAX, true), (ELSEWHERE_ANSWER_BYTES_MAX + 1, false)] {
            let body = http_body_util::Full::new(Bytes::from(vec![0; bytes]));
            let body = HttpResponseBody::new(body.map_err(|never| match never {}));
            let answer = limited(HttpResponse::new(body));
            assert_eq!(answer.into_body().collect().await.is_ok(), expect, "{bytes}");
        }
    }

    #[test]
    fn listings_are_known_by_their_query() {
        for (query, expect) in [
            (Some("restype=container&comp=list&prefix=a"), true),
            (Some("list-type=2"), true),
            (Some("sv=1&sig=x"), false),
            (None, false),
        ] {
            assert_eq!(is_listing(query), expect, "{query:?}");
        }
    }
}
