//! What is kept, as values.

use std::collections::BTreeMap;

use neap_core::{JobId, Millis};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    pub id: String,
    pub name: String,
    pub lifecycle: Lifecycle,
    pub created: Millis,
    pub updated: Millis,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    Active,
    Deleted,
}

impl Lifecycle {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deleted => "deleted",
        }
    }

    pub(crate) const fn of(deleted: bool) -> Self {
        if deleted { Self::Deleted } else { Self::Active }
    }
}

/// Which of the active and the deleted are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Active,
    Deleted,
    All,
}

impl View {
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_uppercase().as_str() {
            "ACTIVE_ONLY" | "1" => Some(Self::Active),
            "DELETED_ONLY" | "2" => Some(Self::Deleted),
            "ALL" | "3" => Some(Self::All),
            _ => None,
        }
    }

    pub(crate) const fn condition(self) -> &'static str {
        match self {
            Self::Active => "t.deleted = 0",
            Self::Deleted => "t.deleted = 1",
            Self::All => "1",
        }
    }
}

/// MLflow's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    Running,
    Scheduled,
    Finished,
    Failed,
    Killed,
}

impl RunStatus {
    pub const ALL: [Self; 5] = [Self::Running, Self::Scheduled, Self::Finished, Self::Failed, Self::Killed];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Scheduled => "SCHEDULED",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
        }
    }

    /// Numbers are how older clients write them.
    pub fn parse(word: &str) -> Option<Self> {
        let by_number = word.parse::<usize>().ok().and_then(|n| Self::ALL.get(n.checked_sub(1)?).copied());
        by_number.or_else(|| Self::ALL.into_iter().find(|status| status.word().eq_ignore_ascii_case(word)))
    }

    pub const fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Killed)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: String,
    pub experiment: String,
    pub name: String,
    pub user: String,
    pub status: RunStatus,
    pub started: Millis,
    pub ended: Option<Millis>,
    pub lifecycle: Lifecycle,
    /// The job that this run is.
    pub job: Option<JobId>,
    pub params: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    /// The last value of each metric, by name.
    pub metrics: Vec<Latest>,
    pub datasets: Vec<DatasetInput>,
    pub models_in: Vec<String>,
    /// With the step at which each was made.
    pub models_out: Vec<(String, i64)>,
}

/// A run that is begun.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    pub id: String,
    pub experiment: String,
    pub name: String,
    pub user: String,
    pub status: RunStatus,
    pub started: Millis,
    pub ended: Option<Millis>,
    pub job: Option<JobId>,
    /// The job whose token began this run, if one did.
    pub made_by: Option<JobId>,
    pub tags: BTreeMap<String, String>,
}

/// What of a run is to be otherwise; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunChange {
    pub status: Option<RunStatus>,
    pub started: Option<Millis>,
    pub ended: Option<Millis>,
    pub name: Option<String>,
}

/// Whether a job is known as a run already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub job: Option<JobId>,
    /// The job whose token began this run, if one did.
    pub made_by: Option<JobId>,
    /// Nothing about it can change any more but what is logged.
    pub settled: bool,
}

/// A point as it is logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub key: String,
    pub value: f64,
    /// Milliseconds since 1970, as the client's clock says.
    pub timestamp: i64,
    pub step: i64,
    /// The logged model and the dataset that it is about.
    pub model: Option<String>,
    pub dataset: Option<(String, String)>,
}

/// A point of a metric's history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub value: f64,
    pub timestamp: i64,
    pub step: i64,
}

/// A metric with its last point, and how many it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest {
    pub key: String,
    pub last: Point,
    pub points: u64,
}

/// What a run logs at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub metrics: Vec<Metric>,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetInput {
    pub name: String,
    pub digest: String,
    pub source_type: String,
    pub source: String,
    pub schema: Option<String>,
    pub profile: Option<String>,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStatus {
    Pending,
    Ready,
    Failed,
}

impl ModelStatus {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "LOGGED_MODEL_PENDING",
            Self::Ready => "LOGGED_MODEL_READY",
            Self::Failed => "LOGGED_MODEL_UPLOAD_FAILED",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "LOGGED_MODEL_PENDING" | "PENDING" | "1" => Some(Self::Pending),
            "LOGGED_MODEL_READY" | "READY" | "2" => Some(Self::Ready),
            "LOGGED_MODEL_UPLOAD_FAILED" | "FAILED" | "3" => Some(Self::Failed),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoggedModel {
    pub id: String,
    pub experiment: String,
    pub name: String,
    pub kind: String,
    pub source_run: String,
    pub status: ModelStatus,
    pub created: Millis,
    pub updated: Millis,
    pub params: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub metrics: Vec<ModelMetric>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelMetric {
    pub key: String,
    pub last: Point,
    pub run: String,
    /// Name and digest.
    pub dataset: Option<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewModel {
    pub id: String,
    pub experiment: String,
    pub name: String,
    pub kind: String,
    pub source_run: String,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
}

/// A part of a list, and what to ask with for the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}
