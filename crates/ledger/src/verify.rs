//! `neap verify`: the whole log looked at, beside a running server or without one. It reads, and never changes a byte.
//!
//! Always: SQLite's own check, every record's hash and place, every document against its hash, the invariants.
//! With `replay`: the state and the query tables are made again from the first record and compared with what is stored,
//! and the promises are checked on the way, event by event.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neap_core::invariants::{self, Books, History};
use neap_core::{DocHash, Event, Millis, State, apply, meter};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use crate::chain::{Envelope, Head, from_sql, hash, read_events};
use crate::error::Error;
use crate::seal::{self, Seal, Sealing};
use crate::start::{self, last_seq};
use crate::{costs, database, document, limits, projection, schema, snapshot};

#[derive(Clone, Copy, Debug, Default)]
pub struct VerifyOptions {
    /// Also make state and tables again from the first record, and compare.
    pub replay: bool,
}

/// How far it has come, for whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub checked: u64,
    pub events: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The record it is about, where it is about one.
    pub seq: Option<u64>,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "record {seq} {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The last record that was looked at.
    pub events: u64,
    pub documents: u64,
    pub erased: u64,
    /// Whether state and tables were made again and compared.
    pub replayed: bool,
    /// At most [`limits::FINDINGS_MAX`]; `findings_more` counts the rest.
    pub findings: Vec<Finding>,
    pub findings_more: u64,
    pub warnings: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, seq: impl Into<Option<u64>>, what: impl Into<String>) {
        if self.findings.len() < limits::FINDINGS_MAX {
            self.findings.push(Finding { seq: seq.into(), what: what.into() });
        } else {
            self.findings_more += 1;
        }
    }

    /// Damage is a finding; anything else keeps the check from going on.
    fn take<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Damaged { seq, what, .. }) => {
                self.add((seq > 0).then_some(seq), what);
                Ok(None)
            }
            Err(error @ Error::UnknownEvent { seq, .. }) => {
                self.add(seq, format!("cannot be replayed: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Checks the log in `dir`. Damage comes back as findings; an error means that it could not be looked at.
/// Sealed documents are counted and not opened.
pub fn verify(dir: &Path, options: VerifyOptions, progress: impl FnMut(Progress)) -> Result<Report, Error> {
    verify_with(dir, options, None, progress)
}

/// The same, and sealed documents are opened and compared with their hashes.
pub fn verify_with(
    dir: &Path,
    options: VerifyOptions,
    seal: Option<Arc<dyn Seal>>,
    mut progress: impl FnMut(Progress),
) -> Result<Report, Error> {
    let path = dir.join(database::FILE);
    if !path.exists() {
        return Err(Error::NoLedger { path });
    }
    let mut report = Report::default();
    if let Some(connection) = report.take(database::open_reader(&path))? {
        let version = schema::version(&connection, &path);
        let known = schema::STEPS.len() as u32;
        match report.take(version)? {
            None => return Ok(report),
            Some(found) if found > known => return Err(Error::NewerSchema { path, found, known }),
            Some(found) if found < known => return Err(Error::OlderSchema { path, found, known }),
            Some(_) => {}
        }
        let mut check = Check::new(&connection, path, snapshot::folder(dir), options, &mut report)?;
        check.seal = seal;
        check.whole(&mut progress)?;
    }
    Ok(report)
}

struct Check<'a> {
    connection: &'a Connection,
    path: PathBuf,
    snapshots: PathBuf,
    report: &'a mut Report,
    head: Head,
    erased: BTreeSet<DocHash>,
    rebuilt: Option<Rebuilt>,
    seal: Sealing,
}

/// State and tables made again from the first record.
struct Rebuilt {
    state: State,
    tables: Connection,
    watch: Watch,
}

/// What is promised of a course of events, checked while it is replayed.
#[derive(Default)]
struct Watch {
    history: History,
    books: Books,
    since_scan: usize,
}

impl Watch {
    /// What one event breaks. All of a state is looked at as often as its size allows, so that the whole stays linear.
    fn step(&mut self, state: &mut State, at: Millis, event: &Event) -> Vec<String> {
        let mut broken = self.books.observe(state, at, event);
        apply::apply(state, at, event);
        broken.extend(self.history.observe(event, state));
        self.since_scan += 1;
        let size = state.jobs.len() + state.nodes.len() + state.clusters.len() + state.families.len();
        if self.since_scan > size / limits::SCAN_SHARE {
            self.since_scan = 0;
            broken.extend(invariants::check_unplanned(state));
        }
        broken.iter().map(ToString::to_string).collect()
    }
}

impl<'a> Check<'a> {
    fn new(
        connection: &'a Connection,
        path: PathBuf,
        snapshots: PathBuf,
        options: VerifyOptions,
        report: &'a mut Report,
    ) -> Result<Self, Error> {
        let rebuilt = if options.replay { Some(Rebuilt::new(&path)?) } else { None };
        let erased = BTreeSet::new();
        Ok(Self { connection, path, snapshots, report, head: Head::EMPTY, erased, rebuilt, seal: None })
    }

    fn whole(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        // What is there now in pieces, so that a running server's write-ahead log is not held meanwhile; then what
        // came in the meantime, the tables and the state, all as of one moment.
        let last = self.last()?;
        self.records(last, progress)?;
        let path = self.path.clone();
        let storage = || Error::storage("reading the log as of one moment", &path);
        self.connection.execute_batch("BEGIN").map_err(storage())?;
        let last = self.last()?;
        self.records(last, progress)?;
        self.file()?;
        self.documents()?;
        let checked = self.state();
        let ended = self.connection.execute_batch("COMMIT").map_err(storage());
        checked.and(ended)
    }

    fn last(&mut self) -> Result<u64, Error> {
        let last = last_seq(self.connection, &self.path);
        Ok(self.report.take(last)?.unwrap_or(0))
    }

    fn records(&mut self, last: u64, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let connection = self.connection;
        let path = self.path.clone();
        while self.head.seq < last {
            let before = self.head.seq;
            let upto = last.min(before + limits::CHECK_CHUNK_RECORDS);
            let read = read_events(connection, &path, before, upto, |record| self.record(&record));
            if self.report.take(read)?.is_none() && self.head.seq < upto {
                // The record after the last good one is a finding already: go on behind it.
                self.stop_replay("could not be read");
                self.head.seq += 1;
            } else if self.head.seq < upto {
                self.report.add(self.head.seq + 1, format!("and all up to {upto} are missing"));
                self.stop_replay("are missing");
                self.head.seq = upto;
            }
            self.report.events = self.head.seq;
            progress(Progress { checked: self.head.seq, events: last });
        }
        Ok(())
    }

    fn record(&mut self, record: &Envelope) -> Result<(), Error> {
        if let Err(broken) = self.head.follow(record) {
            self.report.add(broken.seq, broken.what);
            // Go on from what it says of itself, so that one damaged record is one finding.
            self.head = Head { seq: record.seq, hash: record.hash, at: record.at };
        }
        let decoded = start::decode(self.connection, &self.path, record);
        let Some(event) = self.report.take(decoded)? else {
            self.stop_replay("could not be read");
            return Ok(());
        };
        self.documents_of(record.seq, &event)?;
        let Some(rebuilt) = &mut self.rebuilt else { return Ok(()) };
        let postings = meter::postings(&rebuilt.state, record.at, &event);
        for broken in rebuilt.watch.step(&mut rebuilt.state, record.at, &event) {
            self.report.add(record.seq, format!("breaks a promise: {broken}"));
        }
        let projected = costs::post(&rebuilt.tables, record.seq, &postings)
            .and_then(|()| projection::project(&rebuilt.tables, record.seq, record.at, &event));
        if let Err(error) = projected {
            self.report.add(record.seq, format!("cannot be taken into the query tables: {error}"));
            self.stop_replay("could not be taken into the tables");
        }
        Ok(())
    }

    fn stop_replay(&mut self, why: &str) {
        if self.rebuilt.take().is_some() {
            self.report.warnings.push(format!("state and tables were not compared, for records {why}"));
        }
    }

    fn documents_of(&mut self, seq: u64, event: &Event) -> Result<(), Error> {
        if let Event::DocumentErased(e) = event {
            self.erased.insert(e.document);
        }
        for document in document::named_by(event).into_iter().flatten() {
            let found: Option<i64> = self
                .connection
                .prepare_cached("SELECT 1 FROM documents WHERE hash = ?1")
                .and_then(|mut statement| {
                    statement.query_row(params![document.0], |row| row.get(0)).optional()
                })
                .map_err(Error::storage("looking for a document", &self.path))?;
            if found.is_none() {
                self.report.add(seq, format!("names the document {document}, which is not there"));
            }
        }
        Ok(())
    }

    /// SQLite's own look at its file: pages, indices, constraints.
    fn file(&mut self) -> Result<(), Error> {
        let complaints: Result<Vec<String>, rusqlite::Error> = self
            .connection
            .prepare(&format!("PRAGMA integrity_check({})", limits::FINDINGS_MAX))
            .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect());
        let complaints = complaints.map_err(Error::storage("checking the file", &self.path));
        for complaint in self.report.take(complaints)?.unwrap_or_default() {
            if complaint != "ok" {
                self.report.add(None, format!("{}: {complaint}", self.path.display()));
            }
        }
        Ok(())
    }

    fn documents(&mut self) -> Result<(), Error> {
        let checked = self.each_document();
        self.report.take(checked).map(drop)
    }

    fn each_document(&mut self) -> Result<(), Error> {
        let storage = || Error::storage("reading the documents", &self.path);
        let mut statement =
            self.connection.prepare("SELECT hash, salt, body FROM documents").map_err(storage())?;
        let mut rows = statement.query([]).map_err(storage())?;
        let mut unopened = 0_u64;
        while let Some(row) = rows.next().map_err(storage())? {
            self.report.documents += 1;
            let (name, salt, body): (_, Vec<u8>, Option<Vec<u8>>) = (
                DocHash(hash(row, 0).map_err(storage())?),
                row.get(1).map_err(storage())?,
                row.get(2).map_err(storage())?,
            );
            let meant_to_be_erased = self.erased.contains(&name);
            match body {
                None => {
                    self.report.erased += 1;
                    if !meant_to_be_erased {
                        self.report
                            .add(None, format!("the document {name} is empty, and no event erased it"));
                    }
                }
                Some(_) if meant_to_be_erased => {
                    self.report.add(None, format!("the document {name} is there, though an event erased it"));
                }
                Some(_) if salt.is_empty() && self.seal.is_none() => unopened += 1,
                Some(body) => match seal::from_row(&self.seal, &name, salt, body) {
                    Ok((salt, body)) if DocHash::of(&salt, &body) == name => {}
                    Ok(_) => self.report.add(None, format!("the document {name} does not match its hash")),
                    Err(error) => self.report.add(None, error.to_string()),
                },
            }
        }
        if unopened > 0 {
            let warning = format!(
                "{unopened} encrypted documents were not compared with their hashes: the key identity/vault.key is not there"
            );
            self.report.warnings.push(warning);
        }
        Ok(())
    }

    /// The state as a server would start with it: its invariants, and whether a replay comes to the same.
    fn state(&mut self) -> Result<(), Error> {
        // With damage in the log the findings say so already, and there is no state to speak of.
        if !self.report.is_clean() {
            return Ok(());
        }
        let started = start::start(self.connection, &self.path, &self.snapshots, self.head.seq);
        let Some(started) = self.report.take(started)? else { return Ok(()) };
        self.report.warnings.extend(started.warnings);
        for violation in invariants::check(&started.state) {
            self.report.add(None, violation.to_string());
        }
        if let Some(rebuilt) = self.rebuilt.take() {
            for part in differing_parts(&rebuilt.state, &started.state) {
                self.report.add(
                    None,
                    format!(
                        "the state's {part} differ between a replay and the snapshot with what followed it"
                    ),
                );
            }
            for table in schema::QUERY_TABLES {
                self.compare_table(table, &rebuilt.tables)?;
            }
            self.report.replayed = true;
        }
        Ok(())
    }

    fn compare_table(&mut self, table: &str, rebuilt: &Connection) -> Result<(), Error> {
        let storage = || Error::storage("comparing the query tables", &self.path);
        let sql = format!("SELECT * FROM {table} ORDER BY id");
        let mut ours = self.connection.prepare(&sql).map_err(storage())?;
        let mut theirs = rebuilt.prepare(&sql).map_err(storage())?;
        let columns = ours.column_count();
        let read =
            |row: &rusqlite::Row<'_>| (0..columns).map(|c| row.get(c)).collect::<Result<Vec<Value>, _>>();
        let mut ours = ours.query_map([], read).map_err(storage())?;
        let mut theirs = theirs.query_map([], read).map_err(storage())?;
        let (mut stored, mut made) = (ours.next(), theirs.next());
        loop {
            let id =
                |row: &[Value]| if let Some(Value::Integer(id)) = row.first() { from_sql(*id) } else { 0 };
            let (left, right) = match (&stored, &made) {
                (None, None) => return Ok(()),
                (Some(Err(_)), _) | (_, Some(Err(_))) => {
                    stored.transpose().map_err(storage())?;
                    return made.transpose().map(drop).map_err(storage());
                }
                (Some(Ok(left)), None) => (id(left), u64::MAX),
                (None, Some(Ok(right))) => (u64::MAX, id(right)),
                (Some(Ok(left)), Some(Ok(right))) => {
                    if id(left) == id(right) && left != right {
                        self.report.add(
                            None,
                            format!("the table {table} has another row {} than the log says", id(left)),
                        );
                    }
                    (id(left), id(right))
                }
            };
            if left < right {
                self.report
                    .add(None, format!("the table {table} has a row {left} that the log does not say"));
            } else if right < left {
                self.report.add(None, format!("the table {table} lacks the row {right}"));
            }
            if left <= right {
                stored = ours.next();
            }
            if right <= left {
                made = theirs.next();
            }
        }
    }
}

impl Rebuilt {
    /// SQLite keeps a database without a name in memory, and in a file of its own that nobody sees once it is large.
    fn new(path: &Path) -> Result<Self, Error> {
        let storage = || Error::storage("making a database to compare with", path);
        let mut tables = Connection::open("").map_err(storage())?;
        tables.set_prepared_statement_cache_capacity(limits::STATEMENTS_KEPT);
        tables.pragma_update(None, "synchronous", "OFF").map_err(storage())?;
        schema::migrate(&mut tables, path, schema::STEPS)?;
        // One transaction that is never committed.
        tables.execute_batch("BEGIN").map_err(storage())?;
        Ok(Self { state: State::default(), tables, watch: Watch::default() })
    }
}

fn differing_parts(a: &State, b: &State) -> Vec<&'static str> {
    if a == b {
        return Vec::new();
    }
    let parts = [
        ("settings", a.settings == b.settings),
        ("groups", a.groups == b.groups),
        ("workspaces", a.workspaces == b.workspaces && a.workspace_names == b.workspace_names),
        (
            "clusters",
            a.clusters == b.clusters
                && a.cluster_names == b.cluster_names
                && a.cluster_index == b.cluster_index,
        ),
        ("nodes", a.nodes == b.nodes),
        ("jobs", a.jobs == b.jobs),
        ("job names", a.job_names == b.job_names),
        ("timers", a.timers == b.timers),
    ];
    let differing: Vec<_> = parts.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect();
    if differing.is_empty() { vec!["other parts"] } else { differing }
}
