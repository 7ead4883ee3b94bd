//! A specification that is wrong is shown to the server all the same, without what is wrong with it: so that all that would
//! be refused is told at once. The server only looks; where none answers, the file's own problems are told alone.

use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use neap_spec::{Error, Mended, Problem};
use std::path::Path;

/// Everything that is wrong. `mend` builds what can be built of the rest, and `ask` has the server look at that.
pub async fn everything<T>(
    error: Error,
    file: Option<&Path>,
    session: Option<&Session>,
    mend: impl FnOnce(&Session, Vec<Problem>) -> Option<Mended<T>>,
    ask: impl AsyncFnOnce(&Session, &mut T) -> Outcome<()>,
) -> Failure {
    let problems = match error {
        Error::Problems(problems) => problems,
        other => return Failure::from(other).of_file(file),
    };
    let mut lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if let Some(session) = session
        && let Some(mut mended) = mend(session, problems)
        && let Err(refused) = ask(session, &mut mended.built).await
        && refused.exit != Exit::Unreachable
    {
        lines.extend(refused.lines().into_iter().filter(|line| mended.holds(code_of(line), line)));
    }
    Failure::of_specification(lines).of_file(file)
}

/// The code of a problem that a server told.
fn code_of(line: &str) -> &str {
    line.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(code, _)| code)
}
