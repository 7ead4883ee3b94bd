//! The warning that a node is about to be taken back: a file that the job may look for.
//!
//! The folder it appears in is the job's own: it is written beside and put in place by a rename, so that nothing the
//! job has put there is followed or written to.

use std::io;

use serde_json::json;

use crate::checkpoint::rfc3339;
use crate::prepare::Layout;

/// Its name below the job's folder.
const FILE: &str = "preemption.json";

pub(crate) fn variable(layout: &Layout) -> (&'static str, String) {
    ("NEAP_PREEMPTION_FILE", layout.seen.join(FILE).display().to_string())
}

/// Writes the file. `now_ms` is the time of day; the processes have `grace_ms` from then.
pub(crate) fn warn(layout: &Layout, now_ms: u64, grace_ms: u64) -> io::Result<()> {
    let deadline_ms = now_ms.saturating_add(grace_ms);
    let text = serde_json::to_vec_pretty(&json!({
        "event": "preempted",
        "warned_at": rfc3339(now_ms),
        "deadline": rfc3339(deadline_ms),
        "deadline_unix_seconds": deadline_ms as f64 / 1000.0,
        "says": "The node is taken back. The processes of this job have until the deadline; then the checkpoint folder \
                 and the outputs are saved, and the job goes on elsewhere.",
    }))?;
    layout.work_tree.replace(FILE, 0o644, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn what_the_job_put_there_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "mine").unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        for name in [FILE, ".preemption.json.new"] {
            std::os::unix::fs::symlink(&outside, work.join(name)).unwrap();
        }
        Tree::open(&work, None).unwrap().replace(FILE, 0o644, b"{}").unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(work.join(FILE)).unwrap(), "{}");
        assert!(!work.join(FILE).symlink_metadata().unwrap().is_symlink());
    }
}
