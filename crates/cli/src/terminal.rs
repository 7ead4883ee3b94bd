//! What the user sees beside the data: notes, warnings, errors, progress, questions. All of it on stderr.

use crate::args::Global;
use crate::failure::{Exit, Failure, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use neap_core::visible;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A line on stderr. One that cannot be written is lost: `eprintln!` would panic, and stderr may be a file on a full disk.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = writeln!(anstream::stderr(), $($words)*);
    }};
}

/// Messages quote what others have named. A line that they begin is indented, so that it cannot pass for one of ours.
fn shown(text: &str) -> String {
    visible::text(text).replace('\n', "\n  ")
}

/// How much is said, and whether anyone watches.
#[derive(Debug, Clone)]
pub struct Terminal {
    quiet: bool,
    verbose: bool,
    debug: bool,
    watched: bool,
}

impl Terminal {
    pub fn new(global: &Global) -> Self {
        Self {
            quiet: global.only_show_errors,
            verbose: global.verbose || global.debug,
            debug: global.debug,
            watched: std::io::stderr().is_terminal(),
        }
    }

    /// Progress that a person may like to know.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say!("{}", shown(text));
        }
    }

    pub fn verbose(&self, text: &str) {
        if self.verbose {
            say!("{}", shown(text));
        }
    }

    pub fn debug(&self, text: impl FnOnce() -> String) {
        if self.debug {
            say!("debug: {}", shown(&text()));
        }
    }

    pub fn warning(&self, text: &str) {
        if !self.quiet {
            say!("\u{1b}[1;33mwarning:\u{1b}[0m {}", shown(text));
        }
    }

    pub fn failure(&self, failure: &Failure) {
        say!("\u{1b}[1;31merror:\u{1b}[0m {}", shown(&failure.message));
        for detail in &failure.details {
            say!("  - {}", shown(detail));
        }
        for hint in &failure.hints {
            say!("\u{1b}[1;36mhint:\u{1b}[0m {}", shown(hint));
        }
        if let Some(help) = &failure.help {
            say!("help: {}", visible::line(help));
        }
    }

    /// A spinner on a terminal, silence elsewhere.
    pub fn spinner(&self, text: &str) -> ProgressBar {
        if !self.watched || self.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(visible::line(text).into_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }

    /// A bar that counts bytes, on a terminal.
    pub fn byte_bar(&self, text: &str, bytes: u64) -> ProgressBar {
        if !self.watched || self.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(bytes);
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(visible::line(text).into_owned());
        bar
    }

    /// Asks before something is lost. Without a person to ask, nothing is done.
    pub fn confirm(&self, question: &str) -> Outcome<()> {
        if !self.watched || !std::io::stdin().is_terminal() {
            return Err(Failure::new(Exit::Usage, format!("{question} Nobody is here to answer."))
                .hint("add --yes to go ahead without being asked"));
        }
        eprint!("{} (y/n): ", shown(question));
        // A prompt that cannot be shown is answered by what is typed, or not at all.
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        if std::io::stdin().read_line(&mut answer).is_err() {
            return Err(Failure::failed("the answer could not be read; nothing was done"));
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::failed("stopped; nothing was done")),
        }
    }
}
