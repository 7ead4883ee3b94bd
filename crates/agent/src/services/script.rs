//! How services are started: a shell script and the files it needs, as text. A script, because it runs in any container as
//! well as on the host. It starts what is there and writes down what is not; the command does not wait for it.

use std::fmt::Write;
use std::path::Path;

use neap_protocol::ServiceKind;

use super::{Service, Target};

pub(super) const FILE: &str = "start.sh";
/// What an ssh session runs: the job's environment, in the job's folder.
const LOGIN_FILE: &str = "login.sh";
/// What the script leaves for each service: why it cannot be, how it ended, what it said.
pub(super) const FAILED: &str = "failed";
pub(super) const ENDED: &str = "ended";
pub(super) const LOG: &str = "log";
pub(super) const SOCKET: &str = "sock";
pub(super) const USER: &str = "user";
pub(super) const HOST_KEY: &str = "host.pub";
pub(super) const WHOLE_PATH: &str = "whole";

/// Where everything is, as the job sees it.
pub(super) struct Place<'a> {
    pub dir: &'a Path,
    pub cwd: &'a Path,
}

/// The name of a service's file.
pub(super) fn name(number: usize, what: &str) -> String {
    format!("{number}.{what}")
}

/// The files of the services' folder, the script among them; `None` where nothing has to be started.
pub(super) fn files(services: &[Service], place: &Place<'_>) -> Option<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut script = head(place);
    let before = script.len();
    for service in services {
        match (&service.spec.what, &service.target) {
            (ServiceKind::Custom | ServiceKind::RayDashboard, _) => {}
            (ServiceKind::Ssh { public_keys }, Target::Port(at)) => {
                let number = service.number;
                files.push((name(number, "keys"), public_keys.join("\n") + "\n"));
                files.push((name(number, "sshd"), sshd_config(number, place, at.port())));
                if !files.iter().any(|(name, _)| name == LOGIN_FILE) {
                    files.push((LOGIN_FILE.to_owned(), login(place)));
                }
                script += &ssh(number);
            }
            (ServiceKind::TensorBoard { log_dir }, Target::Port(at)) => {
                let words = format!(
                    "tensorboard --logdir {} --host 127.0.0.1 --port {} --path_prefix {}",
                    folder(log_dir.as_deref().unwrap_or(".")),
                    at.port(),
                    quoted(service.spec.path.trim_end_matches('/')),
                );
                script += &found(service.number, "tensorboard", "tensorboard", &words, true);
            }
            (ServiceKind::JupyterLab, _) => {
                // Whoever may open the socket is let in: that is the job itself, and the agent for those whom the server let in.
                let words = format!(
                    "jupyter-lab --no-browser --allow-root --ServerApp.sock=\"$dir/{}\" --ServerApp.base_url={} \
                     --ServerApp.root_dir=\"$cwd\" --ServerApp.allow_remote_access=True --IdentityProvider.token= \
                     --PasswordIdentityProvider.hashed_password=",
                    name(service.number, SOCKET),
                    quoted(&service.spec.path),
                );
                script += &found(service.number, "jupyter-lab", "jupyterlab", &words, true);
            }
            (ServiceKind::VsCode, _) => script += &vs_code(service),
            (ServiceKind::Ssh { .. } | ServiceKind::TensorBoard { .. }, Target::Socket) => {}
        }
    }
    (script.len() > before).then(|| {
        files.push((FILE.to_owned(), script));
        files
    })
}

fn head(place: &Place<'_>) -> String {
    format!(
        "umask 077\ndir={}\ncwd={}\ncd \"$cwd\" || exit 1\n\
         fail() {{ echo \"$2\" >\"$dir/$1.{FAILED}\"; }}\n\
         run() {{ n=$1; shift; ( umask 022; \"$@\" >\"$dir/$n.{LOG}\" 2>&1 </dev/null; echo \"$?\" >\"$dir/$n.{ENDED}\" ) & }}\n",
        quoted(&place.dir.display().to_string()),
        quoted(&place.cwd.display().to_string()),
    )
}

/// Runs these words if their program is there.
fn found(number: usize, program: &str, package: &str, words: &str, whole_path: bool) -> String {
    let whole =
        if whole_path { format!("echo yes >\"$dir/{}\"; ", name(number, WHOLE_PATH)) } else { String::new() };
    format!(
        "if command -v {program} >/dev/null 2>&1; then {whole}run {number} {words}\nelse fail {number} {}\nfi\n",
        quoted(&absent(program, package))
    )
}

fn absent(program: &str, package: &str) -> String {
    format!("The program '{program}' is not in the job's environment; add '{package}' to it.")
}

fn vs_code(service: &Service) -> String {
    let number = service.number;
    let socket = name(number, SOCKET);
    let mut text = format!(
        "if command -v code-server >/dev/null 2>&1; then\n\
         run {number} code-server --auth none --socket \"$dir/{socket}\" --socket-mode 600 --disable-telemetry \
         --disable-update-check --user-data-dir \"$dir/{number}.data\" \"$cwd\"\n"
    );
    let _ = write!(
        text,
        "elif command -v openvscode-server >/dev/null 2>&1; then echo yes >\"$dir/{}\"\n\
         run {number} openvscode-server --without-connection-token --socket-path \"$dir/{socket}\" --server-base-path {} \
         --telemetry-level off --server-data-dir \"$dir/{number}.data\"\n\
         else fail {number} {}\nfi\n",
        name(number, WHOLE_PATH),
        quoted(service.spec.path.trim_end_matches('/')),
        quoted(
            "Neither 'code-server' nor 'openvscode-server' is in the job's environment; add one of them to it."
        ),
    );
    text
}

/// OpenSSH's own server, for this user alone, with a host key of its own.
fn ssh(number: usize) -> String {
    let mut text = format!(
        "sshd=$(PATH=\"$PATH:/usr/local/sbin:/usr/sbin:/sbin\"; command -v sshd)\n\
         if [ -z \"$sshd\" ]; then fail {number} {}\n\
         elif ! command -v ssh-keygen >/dev/null 2>&1; then fail {number} {}\n\
         elif ! id -un >\"$dir/{user}.new\" 2>/dev/null; then fail {number} {}\n",
        quoted(&absent("sshd", "openssh-server")),
        quoted(&absent("ssh-keygen", "openssh-client")),
        quoted(
            "The job's user has no name in this container, and sshd lets nobody in whom it does not know; \
             add a line for it to the image's /etc/passwd, or run the job without a container."
        ),
        user = name(number, USER),
    );
    let _ = write!(
        text,
        "else\n\
         export -p >\"$dir/environment.sh\"\n\
         for sftp in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server \
         /usr/libexec/sftp-server; do\n\
         if [ -x \"$sftp\" ]; then echo \"Subsystem sftp $sftp\" >>\"$dir/{number}.sshd\"; break; fi\ndone\n\
         [ \"$(id -u)\" = 0 ] && mkdir -p /run/sshd\n\
         rm -f \"$dir/{number}.host\" \"$dir/{number}.host.pub\"\n\
         ssh-keygen -q -t ed25519 -N '' -C '' -f \"$dir/{number}.host\" && mv \"$dir/{user}.new\" \"$dir/{user}\"\n\
         run {number} \"$sshd\" -D -e -f \"$dir/{number}.sshd\"\nfi\n",
        user = name(number, USER),
    );
    text
}

fn sshd_config(number: usize, place: &Place<'_>, port: u16) -> String {
    let dir = place.dir.display();
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/{number}.host\nAuthorizedKeysFile {dir}/{number}.keys\n\
         PidFile none\nStrictModes no\nUsePAM no\nPubkeyAuthentication yes\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nX11Forwarding no\nPrintMotd no\nPrintLastLog no\n\
         ForceCommand /bin/sh {dir}/{LOGIN_FILE}\n"
    )
}

fn login(place: &Place<'_>) -> String {
    format!(
        ". {}\ncd {} 2>/dev/null\nshell=/bin/bash; [ -x \"$shell\" ] || shell=/bin/sh\n\
         if [ -n \"$SSH_ORIGINAL_COMMAND\" ]; then exec \"$shell\" -c \"$SSH_ORIGINAL_COMMAND\"; fi\nexec \"$shell\" -i\n",
        quoted(&place.dir.join("environment.sh").display().to_string()),
        quoted(&place.cwd.display().to_string()),
    )
}

/// A folder as people write it: `~` is the job's home.
fn folder(text: &str) -> String {
    match text.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None => quoted(text),
    }
}

/// One word for a shell, whatever is in it.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_protocol::ServiceSpec;

    fn service(number: usize, what: ServiceKind, target: Target) -> Service {
        let spec =
            ServiceSpec { name: format!("s{number}"), what, port: None, path: "/services/1/j/0/s/".into() };
        Service { spec, number, target }
    }

    fn check(services: &[Service]) -> Option<Vec<(String, String)>> {
        files(services, &Place { dir: Path::new("/tmp/d"), cwd: Path::new("/mnt/it's here") })
    }

    #[test]
    fn nothing_is_started_for_what_the_command_does_itself() {
        let at = Target::Port(([127, 0, 0, 1], 80).into());
        assert_eq!(
            check(&[service(0, ServiceKind::Custom, at.clone()), service(1, ServiceKind::RayDashboard, at)]),
            None
        );
    }

    #[test]
    fn words_stay_words() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(folder("~/a b"), "\"$HOME\"/'a b'");
        assert_eq!(folder("$(x)"), "'$(x)'");
    }

    #[test]
    fn each_kind_has_its_files() {
        let at = Target::Port(([127, 0, 0, 1], 4022).into());
        let keys = ServiceKind::Ssh { public_keys: vec!["ssh-rsa A".into(), "ssh-rsa B".into()] };
        let board = ServiceKind::TensorBoard { log_dir: Some("./l'ogs".into()) };
        let made = check(&[
            service(0, keys, at.clone()),
            service(1, board, at),
            service(2, ServiceKind::JupyterLab, Target::Socket),
            service(3, ServiceKind::VsCode, Target::Socket),
        ])
        .unwrap();
        let of = |wanted: &str| {
            made.iter().find(|(name, _)| name == wanted).map(|(_, text)| text.as_str()).unwrap()
        };
        assert_eq!(of("0.keys"), "ssh-rsa A\nssh-rsa B\n");
        assert!(of("0.sshd").contains("Port 4022\nListenAddress 127.0.0.1\n"), "{}", of("0.sshd"));
        let script = of(FILE);
        assert!(script.contains(
            r"--logdir './l'\''ogs' --host 127.0.0.1 --port 4022 --path_prefix '/services/1/j/0/s'"
        ));
        assert!(script.contains("--ServerApp.sock=\"$dir/2.sock\""), "{script}");
        assert!(script.contains(r"cwd='/mnt/it'\''s here'"), "{script}");
        let parsed = std::process::Command::new("/bin/sh").args(["-n", "-c", script]).status().unwrap();
        assert!(parsed.success(), "{script}");
        let parsed =
            std::process::Command::new("/bin/sh").args(["-n", "-c", of(LOGIN_FILE)]).status().unwrap();
        assert!(parsed.success(), "{}", of(LOGIN_FILE));
    }
}
