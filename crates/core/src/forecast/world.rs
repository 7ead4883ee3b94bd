//! A copy of the state that lives on by itself: the real `decide` and the real planner, a clock that jumps from one
//! happening to the next, and nodes and attempts that take the time they are said to take. Nothing fails.
//!
//! What nobody can know is left out: what is canceled, evicted or lost, the later trials of a sweep, and
//! the jobs of schedules.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::course::{Course, End};
use super::times::Times;
use crate::command::{AttemptNews, Command, Report};
use crate::decide::decide;
use crate::draft::Draft;
use crate::effects::{self, Effect};
use crate::event::Event;
use crate::ids::{AttemptId, ClusterId, JobId, NodeId};
use crate::job::{AttemptFacts, Exit, JobState, Phase};
use crate::limits::{FORECAST_HORIZON_MS, FORECAST_STEPS_MAX};
use crate::meter::{self, Posting};
use crate::node::{Node, NodeState};
use crate::plan::{Dirty, plan_into};
use crate::problem::Refusal;
use crate::state::State;
use crate::units::{Capacity, Millis};

/// What is asked of a course.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub state: &'a State,
    pub now: Millis,
    /// What comes, in its order, as if somebody sent it then.
    pub coming: &'a [(Millis, Command)],
    /// Who may come beside that, in its order. What is refused of it does not come.
    pub arriving: &'a [(Millis, Command)],
    pub wanted: Wanted<'a>,
    /// The cluster whose nodes are counted.
    pub watched: Option<ClusterId>,
    /// No more than this many steps, and no more than [`FORECAST_STEPS_MAX`].
    pub steps_max: usize,
}

/// What there is to find out; then it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// When everybody who waits now starts.
    Starts,
    /// When this one starts.
    StartOf(JobId),
    /// When everybody ends, and what that costs.
    Ends,
    /// When everybody who waits now starts; and when these end, and what they cost.
    StartsAndEndsOf(&'a [JobId]),
}

/// Runs one course. `go_on` is asked before every step, for whoever has a clock.
pub fn course(
    question: &Question<'_>,
    times: &dyn Times,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Course, Refusal> {
    let mut world = World::new(question, times);
    loop {
        if world.knows_enough() {
            return Ok(world.finish(End::Known));
        }
        let Some(now) = world.next_moment() else { return Ok(world.finish(End::Still)) };
        if now.since(question.now) > FORECAST_HORIZON_MS {
            // Deadlines of what never comes are no news.
            let end = if world.awaits_nothing() { End::Still } else { End::Far };
            return Ok(world.finish(end));
        }
        if world.course.steps >= question.steps_max.min(FORECAST_STEPS_MAX) || !go_on() {
            return Ok(world.finish(End::Bound));
        }
        world.step(now)?;
    }
}

struct World<'a> {
    question: &'a Question<'a>,
    times: &'a dyn Times,
    state: State,
    dirty: Dirty,
    now: Millis,
    /// When the planner wants to look again.
    wake_at: Option<Millis>,
    /// How many of `coming` and `arriving` have come.
    come: usize,
    arrived: usize,
    /// How many of those who are here now have not begun.
    unbegun: usize,
    due: BinaryHeap<Reverse<Due>>,
    /// Happenings so far: those of one moment come in the order in which they were caused.
    caused: u64,
    begun: BTreeSet<Begun>,
    course: Course,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Millis,
    caused: u64,
    news: News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Creating(NodeId),
    Booted(NodeId),
    Gone(NodeId),
    Started(NodeId, AttemptId),
    Ended(NodeId, AttemptId, How),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Success,
    Timeout,
    Stopped,
}

/// What the world was asked for and has begun: it is asked again whenever the planner looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    Create(NodeId),
    Remove(NodeId),
    Start(NodeId, AttemptId),
    Stop(NodeId, AttemptId),
}

impl<'a> World<'a> {
    fn new(question: &'a Question<'a>, times: &'a dyn Times) -> Self {
        let mut state = question.state.clone();
        // Nothing fails: what takes long, or nobody knows how long, is waited for.
        state.settings.create_deadline_ms = 2 * FORECAST_HORIZON_MS;
        state.settings.prepare_deadline_ms = 2 * FORECAST_HORIZON_MS;
        let now = question.now.max(state.now);
        let mut world = Self {
            question,
            times,
            dirty: Dirty::all(&state),
            course: Course::of(&state),
            state,
            now,
            // Whatever is due is looked at first.
            wake_at: Some(now),
            come: 0,
            arrived: 0,
            unbegun: question.state.clusters.values().map(|c| c.queue.len() + c.waiting.len()).sum(),
            due: BinaryHeap::new(),
            caused: 0,
            begun: BTreeSet::new(),
        };
        world.go_on_with_what_is_there();
        world
    }

    /// What was on its way when the forecast begins.
    fn go_on_with_what_is_there(&mut self) {
        let state = self.state.clone();
        for node in state.nodes.values() {
            match node.state {
                NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
                    self.begun.insert(Begun::Create(node.id));
                    self.then(self.now, Some(0), News::Creating(node.id));
                    let since = node.requested;
                    self.then(since, self.times.boot_ms(node, self.now.since(since)), News::Booted(node.id));
                }
                NodeState::Leaving { .. } => {
                    self.begun.insert(Begun::Remove(node.id));
                    let since = node.since;
                    self.then(since, self.times.leave_ms(node, self.now.since(since)), News::Gone(node.id));
                }
                // A broken one is shown for a while yet.
                NodeState::Ready | NodeState::Preempted { .. } | NodeState::Unusable { .. } => {}
            }
        }
        let active = state.clusters.values().flat_map(|cluster| cluster.active.iter());
        let placed = |id: &JobId| {
            let job = state.jobs.get(id)?;
            job.attempt().map(|attempt| (attempt.placed, job))
        };
        let mut active: Vec<_> = active.filter_map(placed).collect();
        active.sort_by_key(|(placed, job)| (*placed, job.id));
        for (placed, job) in active {
            let Some(attempt) = job.attempt() else { continue };
            let id = AttemptId { job: job.id, number: attempt.number };
            for node in attempt.nodes_held() {
                if attempt.stop.is_some() {
                    self.begun.insert(Begun::Stop(node, id));
                    self.then(self.now, Some(0), News::Ended(node, id, How::Stopped));
                    continue;
                }
                self.begun.insert(Begun::Start(node, id));
                if attempt.phase_on(node) == Some(Phase::Assigned) {
                    self.then(self.now, Some(0), News::Started(node, id));
                }
                self.end_later(placed, node, id);
            }
        }
    }

    /// An attempt that was placed then ends by itself, or because its time is up.
    fn end_later(&mut self, placed: Millis, node: NodeId, id: AttemptId) {
        let Some(job) = self.state.jobs.get(&id.job).cloned() else { return };
        let run_ms = self.times.run_ms(&job, self.now.since(placed));
        let how = match (run_ms, job.timeout_ms) {
            (Some(run_ms), Some(timeout_ms)) if run_ms >= timeout_ms => How::Timeout,
            _ => How::Success,
        };
        let ends_ms = match how {
            How::Timeout => job.timeout_ms,
            How::Success | How::Stopped => run_ms,
        };
        self.then(placed, ends_ms, News::Ended(node, id, how));
    }

    /// Some time after something, and not in the past. What takes nobody knows how long never comes.
    fn then(&mut self, since: Millis, span_ms: Option<u64>, news: News) {
        let Some(span_ms) = span_ms else { return };
        self.caused += 1;
        self.due.push(Reverse(Due { at: since.plus(span_ms).max(self.now), caused: self.caused, news }));
    }

    fn next_moment(&self) -> Option<Millis> {
        let coming = self.question.coming.get(self.come).map(|(at, _)| (*at).max(self.now));
        let news = self.due.peek().map(|Reverse(due)| due.at);
        let arriving = self.question.arriving.get(self.arrived).map(|(at, _)| (*at).max(self.now));
        [coming, arriving, news, self.wake_at].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    fn awaits_nothing(&self) -> bool {
        let all_came =
            self.come == self.question.coming.len() && self.arrived == self.question.arriving.len();
        self.due.is_empty() && all_came
    }

    /// One batch, as the writer takes it: news first, then what comes, then the plan.
    fn step(&mut self, now: Millis) -> Result<(), Refusal> {
        self.now = now;
        self.course.steps += 1;
        self.course.until = now;
        let mut draft = Draft::new(std::mem::take(&mut self.state));
        while let Some(Reverse(due)) = self.due.peek()
            && due.at <= now
        {
            for report in reports(&draft.state, due.news).into_iter().flatten() {
                // News of what is gone meanwhile is no news.
                for event in decide(&draft.state, Command::Report(report), now).unwrap_or_default() {
                    draft.emit(now, event);
                }
            }
            self.due.pop();
        }
        while let Some((at, command)) = self.question.coming.get(self.come)
            && *at <= now
        {
            self.come += 1;
            for event in decide(&draft.state, command.clone(), now)? {
                draft.emit(now, event);
            }
        }
        while let Some((at, command)) = self.question.arriving.get(self.arrived)
            && *at <= now
        {
            self.arrived += 1;
            for event in decide(&draft.state, command.clone(), now).unwrap_or_default() {
                draft.emit(now, event);
            }
        }
        self.wake_at = plan_into(&mut draft, &mut self.dirty, now);
        for event in &draft.events {
            self.count(event);
            self.course.see(now, event);
        }
        for posting in draft.postings.iter().flatten() {
            self.course.pay(posting);
        }
        let effects = effects::of_nodes(&draft.state, &draft.touched.nodes);
        self.state = draft.state;
        for effect in effects {
            self.perform(&effect);
        }
        if let Some(cluster) = self.question.watched {
            self.course.count(now, &self.state, cluster);
        }
        Ok(())
    }

    /// Of those who were here, one begins or will never begin.
    fn count(&mut self, event: &Event) {
        let id = match event {
            Event::JobPlaced(e) => e.id,
            Event::JobEnded(e) => e.id,
            _ => return,
        };
        let here = id < self.question.state.next.job && self.question.state.jobs.contains_key(&id);
        if here && !self.course.jobs.contains_key(&id) {
            self.unbegun = self.unbegun.saturating_sub(1);
        }
    }

    fn perform(&mut self, effect: &Effect) {
        let now = self.now;
        match *effect {
            Effect::CreateNode { node } => {
                if self.begun.insert(Begun::Create(node)) {
                    let boot_ms = self.state.nodes.get(&node).and_then(|node| self.times.boot_ms(node, 0));
                    self.then(now, Some(0), News::Creating(node));
                    self.then(now, boot_ms, News::Booted(node));
                }
            }
            Effect::RemoveNode { node } => {
                let leaving =
                    self.state.nodes.get(&node).filter(|n| matches!(n.state, NodeState::Leaving { .. }));
                if let Some(leaving) = leaving.cloned()
                    && self.begun.insert(Begun::Remove(node))
                {
                    self.then(now, self.times.leave_ms(&leaving, 0), News::Gone(node));
                }
            }
            Effect::StartAttempt { node, attempt } => {
                if self.begun.insert(Begun::Start(node, attempt)) {
                    self.then(now, Some(0), News::Started(node, attempt));
                    self.end_later(now, node, attempt);
                }
            }
            Effect::StopAttempt { node, attempt } => {
                if self.begun.insert(Begun::Stop(node, attempt)) {
                    self.then(now, Some(0), News::Ended(node, attempt, How::Stopped));
                }
            }
        }
    }

    fn knows_enough(&self) -> bool {
        if self.come < self.question.coming.len() || self.course.steps == 0 {
            return false;
        }
        match self.question.wanted {
            Wanted::Starts => self.unbegun == 0,
            Wanted::StartOf(job) => self.course.jobs.get(&job).is_some_and(|span| span.start.is_some()),
            Wanted::Ends => {
                let kept: usize =
                    self.state.clusters.values().map(|cluster| cluster.scale.min as usize).sum();
                self.state.jobs.is_empty() && self.state.nodes.len() <= kept
            }
            Wanted::StartsAndEndsOf(jobs) => {
                let done = |job: &JobId| {
                    !self.state.is_alive(*job) && !self.state.nodes.values().any(|node| self.pays(node, *job))
                };
                self.unbegun == 0 && jobs.iter().all(done)
            }
        }
    }

    /// Something that this node does is still on the job's bill.
    fn pays(&self, node: &Node, job: JobId) -> bool {
        let kept = || self.state.clusters.get(&node.cluster).is_some_and(|c| c.live <= c.scale.min);
        let idle_after = node.attempts.is_empty()
            && node.last.as_ref().is_some_and(|last| last.job == job)
            && !(node.is_live() && kept());
        let boots_for = node.actual.is_none() && node.caused_by.as_ref().is_some_and(|by| by.job == job);
        idle_after || boots_for
    }

    fn finish(mut self, end: End) -> Course {
        self.course.until = self.now;
        // What is on the way is paid for up to here.
        for segment in meter::open(&self.state, self.now) {
            self.course.pay(&Posting::Segment(segment));
        }
        // What is over already is not to come.
        for segment in meter::open(self.question.state, self.question.now.max(self.question.state.now)) {
            self.course.paid_before(&segment);
        }
        self.course.end = end;
        self.course
    }
}

/// What agents and the provider would say. The number of a report is the next of its attempt.
fn reports(state: &State, news: News) -> [Option<Report>; 2] {
    let of_attempt = |node: NodeId, id: AttemptId, news: AttemptNews| {
        let Some(JobState::Active(attempt)) = state.jobs.get(&id.job).map(|job| &job.state) else {
            return [None, None];
        };
        let number = attempt.last_report_on(node) + 1;
        [Some(Report::Attempt { node, attempt: id, number, news }), None]
    };
    match news {
        // Said of one that is further already, its deadline is put off all the same.
        News::Creating(node) => match state.nodes.get(&node).map(|node| node.state) {
            Some(NodeState::Creating { .. }) => [Some(Report::NodePreparing { node }), None],
            _ => [Some(Report::NodeCreating { node }), None],
        },
        News::Booted(node) => {
            let ready = Report::NodeReady { node, actual: Capacity::default(), isolation: "forecast".into() };
            [Some(Report::NodePreparing { node }), Some(ready)]
        }
        News::Gone(node) => [Some(Report::NodeGone { node, reason: "it has left".into() }), None],
        News::Started(node, id) => of_attempt(node, id, AttemptNews::Started { facts: AttemptFacts::new() }),
        News::Ended(node, id, how) => {
            let exit = match how {
                How::Success => Exit::Success,
                How::Timeout => Exit::Timeout,
                How::Stopped => Exit::Stopped,
            };
            of_attempt(node, id, AttemptNews::Ended { exit })
        }
    }
}
