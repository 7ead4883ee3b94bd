//! What is wrong with a request, in the caller's terms. A refusal lists every problem at once.
//!
//! [`Code`] is the one table: error code → HTTP status → page `docs/errors/{code}.md`.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal,)*) => {
        /// Every error code that a face can answer with, and its HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }
        }
    };
}

codes! {
    /// The body or a field of it cannot be read or is out of range.
    BadArgument = 400,
    InvalidResourceName = 400,
    InvalidScaleSettings = 400,
    InvalidVmSize = 400,
    LocationNotAvailable = 400,
    /// The thing exists in Azure ML and Neap names what to use instead.
    NotSupported = 400,
    /// A property that cannot be changed after creation.
    PropertyChangeNotAllowed = 400,
    ComputeNotFound = 400,
    EnvironmentNotFound = 400,
    CodeNotFound = 400,
    DatastoreNotFound = 400,
    SecretNotFound = 400,
    GpuNotAvailable = 400,
    /// The cluster has no nodes of the tier that a job asks for.
    JobTierNotAvailable = 400,
    ResourceTooLarge = 400,
    AuthenticationFailed = 401,
    AuthorizationFailed = 403,
    ResourceNotFound = 404,
    ResourceGroupNotFound = 404,
    ParentResourceNotFound = 404,
    OperationNotFound = 404,
    MethodNotAllowed = 405,
    /// The body of the request came too slowly.
    RequestTimeout = 408,
    ComputeNameTaken = 409,
    JobNameTaken = 409,
    ResourceBeingDeleted = 409,
    /// A lock stops it.
    ScopeLocked = 409,
    /// The quota has no room for the maximum that was asked for.
    ClusterCoreQuotaReached = 409,
    /// The quota has not even room for the smallest form of it.
    ClusterMinNodesExceedCoreQuota = 409,
    /// The job asks for more nodes at once than the quota ever allows.
    JobNodeCountExceedsCoreQuota = 409,
    /// The job's own budget is less than its nodes cost at the least.
    BudgetTooSmall = 409,
    JobNotFinal = 409,
    JobAlreadyFinal = 409,
    /// A request for quota is answered once.
    QuotaRequestAnswered = 409,
    LimitReached = 409,
    DocumentTooLarge = 413,
    TooManyRequests = 429,
    ServerIsStopping = 503,
    /// A service of a job is not there, not yet, or no longer.
    ServiceNotReachable = 503,
    LedgerReadOnly = 503,
    StorageFull = 507,
    InternalError = 500,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub code: Code,
    /// A whole sentence: what is wrong, with the value, and what would be right.
    pub message: String,
    /// The field or resource it is about, as the caller wrote it.
    pub target: Option<String>,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), target: None }
    }

    #[must_use]
    pub fn at(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }
}

/// Why something may not happen: never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub problems: Vec<Problem>,
}

impl Refusal {
    pub fn because(code: Code, message: impl Into<String>) -> Self {
        Self { problems: vec![Problem::new(code, message)] }
    }

    /// `Ok` when there is nothing to refuse for.
    pub fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }

    /// The first problem's code speaks for the whole.
    pub fn code(&self) -> Code {
        self.problems.first().map_or(Code::InternalError, |p| p.code)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "({}) {}", problem.code, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
