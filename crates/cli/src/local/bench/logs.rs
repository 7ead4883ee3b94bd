//! `neap bench logs`: how long a printed line takes to `neap job stream`, and what a very long log costs its job and the
//! server. The stream is a process of its own, as a user has it; what is read from its pipe is what a user sees.

use super::clock;
use super::installation::{Bench, Installation, Subject};
use super::report::{Report, Unit};
use super::samples::Samples;
use super::wire::Wire;
use super::workspace::{Shape, Workspace};
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};

const IDLE_S: u32 = 3_600;
/// Lines printed while the stream's process starts; none of them is counted.
const LINES_BEFORE: u32 = 100;
/// Between two lines.
const PAUSE: &str = "0.02";
const MARK: &str = "NEAP_BENCH ";
/// The shell's clock; one that has none asks a program.
const NOW: &str = "${EPOCHREALTIME:-$(date +%s.%N)}";
/// A line of the long log.
const LINE: &str = "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456";
/// The server's memory is looked at each time so much was read.
const LOOK_BYTES: u64 = 4 << 20;
const MB: u64 = 1_000_000;

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// How many lines are measured
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub lines: u32,
    /// How long the long log is, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=200))]
    pub megabytes: u64,
    #[command(flatten)]
    pub subject: Subject,
}

pub fn run(args: &LogsArgs, bench: &Bench<'_>) -> Outcome<Report> {
    Installation::measure(bench, &args.subject, |installation| {
        Workspace::with_cluster(installation, Shape::small(1, 1, IDLE_S), |workspace, wire| {
            measure(args, installation, workspace, wire)
        })
    })
}

fn measure(
    args: &LogsArgs,
    installation: &Installation<'_>,
    workspace: &Workspace,
    wire: &mut Wire,
) -> Outcome<Report> {
    workspace.wait_for_idle_nodes(installation, wire, 1)?;
    let lines = lines(args.lines, installation, workspace, wire)?;
    let long = long(args.megabytes * MB, installation, workspace, wire)?;
    let about = format!(
        "{} lines {PAUSE} s apart, then {} MB at once, both read by `neap job stream`",
        args.lines, args.megabytes
    );
    let mut report = Report::new("logs", about, installation);
    report.parameter("lines", args.lines);
    report.parameter("megabytes", args.megabytes);
    report.many("line_ms", "line printed to line streamed", Unit::Milliseconds, &lines);
    report.one("file_ms", "long log: written to a file", Unit::Milliseconds, long.file_ms);
    report.one("log_ms", "long log: written to stdout", Unit::Milliseconds, long.log_ms);
    report.one("log_ratio", "stdout : file", Unit::Ratio, long.log_ms / long.file_ms);
    report.one("streamed_ms", "long log: first byte to last, streamed", Unit::Milliseconds, long.streamed_ms);
    report.one("resident_peak_bytes", "server memory, most meanwhile", Unit::Bytes, long.peak as f64);
    report.memory(installation)?;
    Ok(report)
}

/// Milliseconds from print to read, of lines that were printed after the first one was read: the stream was there.
fn lines(
    wanted: u32,
    installation: &Installation<'_>,
    workspace: &Workspace,
    wire: &mut Wire,
) -> Outcome<Samples> {
    let all = wanted + LINES_BEFORE;
    let command = format!("for i in $(seq {all}); do echo {MARK}{NOW}; sleep {PAUSE}; done");
    let mut stream = Stream::open(0, &command, installation, workspace, wire)?;
    let mut samples = Samples::default();
    let mut counted = 0;
    let mut begun = None;
    let mut line = String::new();
    while stream.read_line(&mut line)? {
        let read = clock::wall_ms();
        installation.bench().interrupt.check()?;
        let Some(printed) = times(&line).and_then(|times| times.first().copied()) else { continue };
        let begun = *begun.get_or_insert(read);
        if printed > begun && counted < wanted {
            samples.push(read - printed);
            counted += 1;
        }
    }
    stream.close(workspace, wire)?;
    if counted < wanted {
        return Err(Failure::failed(format!("{counted} of {wanted} lines came after the stream began"))
            .hint("the machine is too busy to measure; try again, or with fewer --lines"));
    }
    Ok(samples)
}

struct Long {
    file_ms: f64,
    log_ms: f64,
    streamed_ms: f64,
    peak: u64,
}

/// A job that writes so many bytes to a file and then to its log, while the log is streamed.
fn long(
    bytes: u64,
    installation: &Installation<'_>,
    workspace: &Workspace,
    wire: &mut Wire,
) -> Outcome<Long> {
    let write = format!("yes '{LINE}' | head -c {bytes}");
    let command = format!(
        "write() {{ {write}; }}; write > bench.txt; rm bench.txt; \
         a={NOW}; write > bench.txt; b={NOW}; write; c={NOW}; printf '\\n{MARK}%s %s %s\\n' $a $b $c"
    );
    let mut stream = Stream::open(1, &command, installation, workspace, wire)?;
    let (mut peak, mut read, mut looked) = (installation.resident_bytes()?, 0, 0);
    let (mut begun, mut last) = (None, Vec::new());
    loop {
        installation.bench().interrupt.check()?;
        let piece = stream.out.fill_buf().map_err(broken)?;
        if piece.is_empty() {
            break;
        }
        begun.get_or_insert_with(clock::now);
        read += piece.len() as u64;
        last.extend_from_slice(piece);
        let taken = piece.len();
        stream.out.consume(taken);
        last.drain(..last.len().saturating_sub(LINE.len() * 4));
        if read >= looked + LOOK_BYTES {
            looked = read;
            peak = peak.max(installation.resident_bytes()?);
        }
    }
    let streamed_ms = begun.map_or(0.0, clock::ms_since);
    stream.close(workspace, wire)?;
    if read < bytes {
        return Err(Failure::failed(format!("{bytes} bytes were logged, and {read} were streamed")));
    }
    let last = String::from_utf8_lossy(&last);
    let times = last.lines().find_map(times);
    let Some(&[begun, file, log]) = times.as_deref() else {
        return Err(Failure::failed("the job's log does not tell how long it took to write"));
    };
    Ok(Long { file_ms: file - begun, log_ms: log - file, streamed_ms, peak })
}

/// `neap job stream` of a job that was just submitted. It ends with the benchmark.
struct Stream {
    name: String,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Stream {
    fn open(
        number: u64,
        command: &str,
        installation: &Installation<'_>,
        workspace: &Workspace,
        wire: &mut Wire,
    ) -> Outcome<Self> {
        let name = workspace.job_name(number);
        wire.put_bytes(&workspace.job_path(&name), &workspace.job_body(command, None))?;
        let mut child = installation.client(&["job", "stream", "--name", &name])?;
        let out = child.stdout.take().ok_or_else(|| Failure::failed("the stream has no output"))?;
        Ok(Self { name, child, out: BufReader::new(out) })
    }

    /// False at the end.
    fn read_line(&mut self, line: &mut String) -> Outcome<bool> {
        let mut bytes = Vec::new();
        self.out.read_until(b'\n', &mut bytes).map_err(broken)?;
        *line = String::from_utf8_lossy(&bytes).into_owned();
        Ok(!bytes.is_empty())
    }

    fn close(mut self, workspace: &Workspace, wire: &mut Wire) -> Outcome<()> {
        let mut rest = Vec::new();
        self.out.read_to_end(&mut rest).map_err(broken)?;
        let ended = self.child.wait().map_err(broken)?;
        workspace.check_job_completed(wire, &self.name)?;
        if !ended.success() {
            return Err(Failure::failed(format!("neap job stream of {} failed: {ended}", self.name)));
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // One that has ended is not hurt.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn broken(error: std::io::Error) -> Failure {
    Failure::failed(format!("the stream broke off: {error}"))
}

/// The times that a whole line tells, in milliseconds since 1970.
fn times(line: &str) -> Option<Vec<f64>> {
    // Some languages write a comma.
    let numbers = line.trim_end().strip_prefix(MARK)?.replace(',', ".");
    numbers.split(' ').map(|number| Some(number.parse::<f64>().ok()? * 1e3)).collect()
}

#[cfg(test)]
mod tests {
    use super::times;

    #[test]
    fn lines_tell_times() {
        assert_eq!(times("NEAP_BENCH 12.5\n"), Some(vec![12_500.0]));
        assert_eq!(times("NEAP_BENCH 1,5 2 3.25\n"), Some(vec![1_500.0, 2_000.0, 3_250.0]));
        assert_eq!(times("NEAP_BENCH 1 x"), None);
        assert_eq!(times("[neap] This job runs"), None);
    }
}
