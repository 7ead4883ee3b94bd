//! Known bugs that a test can switch on, one at a time and for its own thread, to see that the simulator finds them.
//!
//! Without the feature `planted-bugs` the question is always answered no, at compile time: no build that serves has
//! any of this in it.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident $word:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[$doc])* $name,)* }

        impl Bug {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

bugs! {
    AcknowledgeBeforeCommit "acknowledge-before-commit";
    ReportAcknowledgedBeforeCommit "report-acknowledged-before-commit";
    FailedCommitKept "failed-commit-kept";
    ChainNotAdvanced "chain-not-advanced";
    SnapshotTooNew "snapshot-too-new";
    RequeueOnSilence "requeue-on-silence";
    FailedFenceCounts "failed-fence-counts";
    NoOrphanSweep "no-orphan-sweep";
    LeaseFromReceipt "lease-from-receipt";
    LeaseNeverEnds "lease-never-ends";
    RestartForgetsLeases "restart-forgets-leases";
    SupervisorIgnoresLease "supervisor-ignores-lease";
    AgentIgnoresLease "agent-ignores-lease";
    OlderConnectionWins "older-connection-wins";
    NodeHeardLost "node-heard-lost";
    DuplicateStart "duplicate-start";
    ReportAcceptedTwice "report-accepted-twice";
    StaleAttemptAccepted "stale-attempt-accepted";
    RequeueLosesPlace "requeue-loses-place";
    NameForgotten "name-forgotten";
    IdleTimerNotReset "idle-timer-not-reset";
    BusyNodeRemoved "busy-node-removed";
    MaxIgnored "max-ignored";
    CancelLost "cancel-lost";
    DrainLosesJobs "drain-loses-jobs";
    TimerMissing "timer-missing";
    BackoffNeverEnds "backoff-never-ends";
    RoomNotReturned "room-not-returned";
    ClusterDeletedEarly "cluster-deleted-early";
    /// Before everything that it waits for has completed.
    ReleasedTooEarly "released-too-early";
    InVainReleased "in-vain-released";
    FamilyNeverCloses "family-never-closes";
    FamilyCancelLost "family-cancel-lost";
    GangOvertaken "gang-overtaken";
    GangHalfPlaced "gang-half-placed";
    /// One rank's loss sends the job back while the others run.
    RankLossRequeues "rank-loss-requeues";
    RankEndCountedTwice "rank-end-counted-twice";
    /// Nodes are asked for beyond a limit on cores.
    QuotaPassed "quota-passed";
    /// Nodes are asked for beyond what their location has.
    LocationPassed "location-passed";
    /// A larger maximum is taken although the limit has no room for it.
    QuotaNotChecked "quota-not-checked";
    /// Of a mixed cluster the dedicated nodes are counted as low priority.
    FloorHeldAsLow "floor-held-as-low";
    /// A job is put on a node of a tier that it did not choose.
    TierIgnored "tier-ignored";
    /// The room that dedicated work took back is given to low priority again.
    RoomNotKept "room-not-kept";
    LockIgnored "lock-ignored";
    /// What rounding leaves is on nobody's bill.
    CostRounded "cost-rounded";
    /// A money lease is renewed although the budget has nothing left.
    BudgetIgnoredAtRenewal "budget-ignored-at-renewal";
    /// A job is put on a node without asking who pays.
    BudgetNotAsked "budget-not-asked";
    /// The declared maximum does not come back when a window is over.
    WindowNeverCloses "window-never-closes";
    /// Nodes of an older definition go all at once.
    RolledAllAtOnce "rolled-all-at-once";
    /// What was spent before a period's end is charged to the next.
    PeriodNotSplit "period-not-split";
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug on this thread, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(feature = "planted-bugs")]
pub fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted-bugs"))]
pub const fn is(_: Bug) -> bool {
    false
}
