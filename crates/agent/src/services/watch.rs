//! How an attempt's services are: looked at until the attempt is over, and told when something has changed.

use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use neap_protocol::{ServiceState, ServiceStatus};
use tokio::sync::mpsc::UnboundedSender;

use super::script::{self, ENDED, FAILED, HOST_KEY, LOG, USER, WHOLE_PATH};
use super::{DIR, Desk, LOOK_MS, LOOK_SETTLED_MS, MESSAGE_CHARS_MAX, NOTE_BYTES_MAX, Service, Target};
use crate::driver::Happening;
use crate::session::Input;
use crate::tree::Tree;

/// Looks at the services as long as it is not dropped.
pub(crate) async fn mind(desk: Rc<Desk>, say: UnboundedSender<Happening>) {
    let mut told: Vec<ServiceState> = Vec::new();
    loop {
        let mut states = Vec::with_capacity(desk.services.len());
        for service in &desk.services {
            let before = told.iter().find(|state| state.name == service.spec.name);
            states.push(desk.look_at(service, before).await);
        }
        let settled = states.iter().all(|state| state.status != ServiceStatus::Starting);
        if states != told {
            told.clone_from(&states);
            let input = Input::Services { attempt: desk.attempt, services: states };
            if say.send(Happening::Session(input)).is_err() {
                return;
            }
        }
        let pause_ms = if settled { LOOK_SETTLED_MS } else { LOOK_MS };
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}

impl Desk {
    async fn look_at(&self, service: &Service, before: Option<&ServiceState>) -> ServiceState {
        let notes = Notes { tmp: &self.tmp };
        let note = |what: &str| notes.read(service.number, what);
        let mut state = ServiceState {
            name: service.spec.name.clone(),
            status: ServiceStatus::Starting,
            port: match &service.target {
                Target::Port(at) => Some(at.port()),
                Target::Socket => None,
            },
            message: None,
            whole_path: note(WHOLE_PATH).is_some(),
            user: note(USER).map(|text| one_line(&text)),
            host_key: note(HOST_KEY).map(|text| one_line(&text)),
        };
        if let Some(why) = note(FAILED) {
            state.status = ServiceStatus::Failed;
            state.message = Some(one_line(&why));
        } else if let Some(code) = note(ENDED) {
            state.status = ServiceStatus::Failed;
            let said = notes.last_line(service.number).unwrap_or_default();
            state.message = Some(ended(&one_line(&code), &one_line(&said)));
        } else if before.is_some_and(|before| before.status == ServiceStatus::Running)
            || self.connect(service).await.is_ok()
        {
            state.status = ServiceStatus::Running;
        }
        state
    }
}

fn ended(code: &str, said: &str) -> String {
    let mut text = format!("It ended with code {code}");
    if !said.is_empty() {
        text += ": ";
        text += said;
    }
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// The first line, without anything that is not text.
fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

/// What the script has written. The job could have written it too: it would only tell a story about itself.
struct Notes<'a> {
    tmp: &'a Tree,
}

impl Notes<'_> {
    /// A note that is there and not empty.
    fn read(&self, number: usize, what: &str) -> Option<String> {
        let mut text = Vec::new();
        self.file(number, what)?.take(NOTE_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The last thing it said.
    fn last_line(&self, number: usize) -> Option<String> {
        use std::os::unix::fs::FileExt;
        let file = self.file(number, LOG)?;
        let from = file.metadata().ok()?.len().saturating_sub(NOTE_BYTES_MAX);
        let mut bytes = vec![0; NOTE_BYTES_MAX as usize];
        let read = file.read_at(&mut bytes, from).ok()?;
        let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }

    fn file(&self, number: usize, what: &str) -> Option<std::fs::File> {
        self.tmp.read(&format!("{DIR}/{}", script::name(number, what))).ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_wrote_is_read_with_care() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join(DIR);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("0.failed"), "\u{1b}[31mNo\tsuch program\nsecond\n").unwrap();
        std::fs::write(dir.join("1.failed"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("2.failed")).unwrap();
        std::fs::write(dir.join("3.log"), "first\nport is taken\n\n").unwrap();
        let tree = Tree::open(tmp.path(), None).unwrap();
        let notes = Notes { tmp: &tree };
        assert_eq!(one_line(&notes.read(0, FAILED).unwrap()), "[31mNosuch program");
        assert_eq!(notes.read(1, FAILED), None);
        assert_eq!(notes.read(2, FAILED), None, "a link leads nowhere");
        assert_eq!(notes.last_line(3).as_deref(), Some("port is taken"));
        assert_eq!(ended("1", "port is taken"), "It ended with code 1: port is taken");
        std::fs::rename(&dir, tmp.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(tmp.path().join("elsewhere"), &dir).unwrap();
        assert_eq!(notes.read(0, FAILED), None, "nor does a linked folder");
    }
}
