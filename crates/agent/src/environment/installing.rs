//! What is handed to whoever installs packages: the operator's settings for pip and for the network, and the build
//! context of an image with packages on top. Pure text but for the environment's own variables.

#![allow(
    clippy::disallowed_types,
    reason = "the engine's API has hash maps in its types; their order means nothing"
)]

use std::collections::HashMap;

use super::packages::Wanted;

/// Variables of the server's environment that builds get: where packages come from, and how they are reached. Jobs do
/// not get them.
const NAMES: [&str; 14] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "CONDA_CHANNELS",
    "CONDARC",
];
const PREFIXES: [&str; 2] = ["PIP_", "UV_"];
/// Inside of an image, files and folders of the host mean nothing.
const NOT_IN_IMAGES: [&str; 11] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "CONDARC",
    "PIP_CERT",
    "PIP_CACHE_DIR",
    "PIP_CONFIG_FILE",
    "PIP_FIND_LINKS",
    "UV_CACHE_DIR",
    "UV_PYTHON",
];

pub(crate) const DOCKERFILE: &str = "Dockerfile";
const CERTIFICATES: &str = "certificates.pem";

fn passes(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What of these variables a build gets.
pub(crate) fn variables(all: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    all.filter(|(name, _)| passes(name)).collect()
}

fn image_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars().filter(|(name, _)| passes(name) && !NOT_IN_IMAGES.contains(&name.as_str()))
}

/// The same, for the build of an image. The engine takes only those that the Dockerfile names.
pub(crate) fn build_arguments() -> HashMap<String, String> {
    image_variables().collect()
}

/// The certificates that this machine trusts, where its environment names them.
pub(crate) fn certificates() -> Option<Vec<u8>> {
    ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"]
        .iter()
        .find_map(|name| std::fs::read(std::env::var_os(name)?).ok())
}

/// The files of a context that puts packages on top of an image.
pub(crate) fn derived(image: &str, wanted: &Wanted, written: &str) -> Vec<(&'static str, Vec<u8>)> {
    let names: Vec<String> = image_variables().map(|(name, _)| name).collect();
    let certificates = certificates();
    let mut dockerfile = format!("FROM {image}\nUSER 0\n");
    for name in names {
        dockerfile.push_str(&format!("ARG {name}\n"));
    }
    dockerfile.push_str(
        "COPY . /opt/neap/files\nRUN /bin/sh /opt/neap/files/install.sh\nENV PATH=/opt/neap/env/bin:$PATH\n",
    );
    let mut files = vec![
        (DOCKERFILE, dockerfile.into_bytes()),
        ("install.sh", install_script(wanted, certificates.is_some()).into_bytes()),
        (
            "requirements.txt",
            wanted.requirements.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes(),
        ),
    ];
    if wanted.conda {
        files.push(("conda.yml", written.as_bytes().to_vec()));
    }
    files.extend(certificates.map(|bytes| (CERTIFICATES, bytes)));
    files
}

/// Installs with the image's own conda, or with its own pip.
fn install_script(wanted: &Wanted, certificates: bool) -> String {
    let mut script = String::from("set -e\ncd /opt/neap/files\n");
    if certificates {
        script.push_str(&format!(
            "for name in PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE; do export \"$name=$PWD/{CERTIFICATES}\"; done\n"
        ));
    }
    if wanted.conda {
        script.push_str(
            "for conda in micromamba mamba conda; do\n  command -v \"$conda\" >/dev/null 2>&1 || continue\n  \
             case $conda in micromamba) new=create ;; *) new='env create' ;; esac\n  \
             \"$conda\" $new --yes --prefix /opt/neap/env --file conda.yml\n  exit 0\ndone\n",
        );
        if !wanted.unknown.is_empty() {
            let names = wanted.unknown.join(", ").replace(['\'', '\\'], "");
            script.push_str(&format!(
                "echo '[neap] There is no conda in the image, and these conda packages have no known name on PyPI: {names}' >&2\nexit 1\n"
            ));
        }
    }
    script.push_str(
        "command -v python3 >/dev/null 2>&1 || { echo '[neap] There is neither conda nor python3 in the image to install packages with.' >&2; exit 1; }\n\
         python3 -m venv /opt/neap/env\n\
         /opt/neap/env/bin/python -m pip install --no-cache-dir --progress-bar off -r requirements.txt\n",
    );
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::packages;

    #[test]
    fn builds_get_what_they_need_and_nothing_else() {
        let all =
            ["PIP_INDEX_URL", "HTTPS_PROXY", "UV_INDEX", "NEAP_SECRET", "HOME", "AWS_SECRET_ACCESS_KEY"];
        let kept = variables(all.iter().map(|name| ((*name).to_owned(), "v".to_owned())));
        let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PIP_INDEX_URL", "HTTPS_PROXY", "UV_INDEX"]);
    }

    #[test]
    fn an_image_gets_its_packages_on_top() {
        let text = "name: x\ndependencies:\n  - numpy=1.26\n  - strange'one\n";
        let wanted = packages::read(text).unwrap();
        let files = derived("base:1", &wanted, text);
        let file = |name: &str| {
            let (_, bytes) = files.iter().find(|(found, _)| *found == name).unwrap();
            String::from_utf8_lossy(bytes).into_owned()
        };
        assert!(file(DOCKERFILE).starts_with("FROM base:1\nUSER 0\n"));
        assert_eq!(file("requirements.txt"), "numpy==1.26.*\n");
        assert_eq!(file("conda.yml"), text);
        let script = file("install.sh");
        assert!(script.contains("have no known name on PyPI: strangeone'"), "{script}");
        let plain = packages::read("six").unwrap();
        assert!(!install_script(&plain, false).contains("conda.yml"));
    }
}
