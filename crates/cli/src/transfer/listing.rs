//! The XML list of a container's blobs: names and lengths, the only things read from it.

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub blobs: Vec<(String, u64)>,
    pub next: Option<String>,
}

pub fn parse(xml: &str) -> Page {
    let mut page = Page::default();
    let mut rest = xml;
    while let Some((blob, after)) = element(rest, "Blob") {
        if let Some((name, _)) = element(blob, "Name") {
            let bytes =
                element(blob, "Content-Length").and_then(|(text, _)| text.trim().parse().ok()).unwrap_or(0);
            page.blobs.push((unescape(name), bytes));
        }
        rest = after;
    }
    page.next =
        element(rest, "NextMarker").map(|(text, _)| unescape(text.trim())).filter(|text| !text.is_empty());
    page
}

/// The text inside the first `<tag>`, and what follows it.
fn element<'a>(xml: &'a str, tag: &str) -> Option<(&'a str, &'a str)> {
    let open = format!("<{tag}");
    let mut from = 0;
    loop {
        let start = from + xml[from..].find(&open)?;
        let after = &xml[start + open.len()..];
        // `<Blob` also begins `<Blobs>` and `<BlobType>`.
        if after.starts_with(['>', ' ']) {
            let inner = &after[after.find('>')? + 1..];
            let close = format!("</{tag}>");
            let end = inner.find(&close)?;
            return Some((&inner[..end], &inner[end + close.len()..]));
        }
        from = start + open.len();
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&#39;", "'")
        .replace("&#13;", "\r")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::{Page, parse};

    #[test]
    fn names_and_lengths_are_read() {
        let xml = "<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>a/b &amp; c.txt</Name><Properties>\
                   <Content-Length>12</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>\
                   <Blob><Name>d</Name><Properties/></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>";
        let expected =
            Page { blobs: vec![("a/b & c.txt".into(), 12), ("d".into(), 0)], next: Some("m".into()) };
        assert_eq!(parse(xml), expected);
        assert_eq!(parse("<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>"), Page::default());
    }
}
