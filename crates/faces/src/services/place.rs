//! Which service a path names.

use neap_core::{Code, Refusal, WorkspaceId};
use neap_ledger::JobRow;
use percent_encoding::percent_decode_str;

use crate::app::App;
use crate::arm::find_job;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub workspace: WorkspaceId,
    pub job: String,
    /// Counted from 0.
    pub node: u32,
    pub service: String,
}

impl Place {
    /// The service, and what follows it in the path, as it came and without its first slash; `None` where there is not even
    /// that slash.
    pub fn parse(path: &str) -> Option<(Self, Option<&str>)> {
        let mut parts = path.strip_prefix("/services/")?.splitn(5, '/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let text = |part: &str| percent_decode_str(part).decode_utf8().ok().map(|text| text.into_owned());
        let workspace = WorkspaceId(next()?.parse().ok()?);
        let job = text(next()?)?;
        let node = next()?.parse().ok()?;
        let service = text(next()?)?;
        Some((Self { workspace, job, node, service }, parts.next()))
    }

    /// With a slash at both ends.
    pub fn path(&self) -> String {
        neap_control::service_path(self.workspace, &self.job, self.node, &self.service)
    }

    pub fn job_row(&self, app: &App) -> Result<JobRow, Refusal> {
        let state = app.state();
        let workspace = state.workspaces.get(&self.workspace).ok_or_else(|| {
            Refusal::because(Code::ResourceNotFound, format!("Job {} not found.", self.job))
        })?;
        find_job(app, workspace, &self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_services() {
        let place = Place { workspace: WorkspaceId(1), job: "a job".into(), node: 2, service: "tb".into() };
        assert_eq!(place.path(), "/services/1/a%20job/2/tb/");
        for (path, rest) in [
            ("/services/1/a%20job/2/tb", None),
            ("/services/1/a%20job/2/tb/", Some("")),
            ("/services/1/a%20job/2/tb/x%2Fy//z/", Some("x%2Fy//z/")),
        ] {
            assert_eq!(Place::parse(path), Some((place.clone(), rest)), "{path}");
        }
        for path in
            ["/services/1/j/0", "/services/x/j/0/s/", "/services/1/j/-1/s/", "/services//j/0/s/", "/other"]
        {
            assert_eq!(Place::parse(path), None, "{path}");
        }
    }
}
