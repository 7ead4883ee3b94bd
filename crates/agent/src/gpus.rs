//! The node's GPUs: which attempt has which, what the attempt is told, and what is measured of them.
//!
//! A GPU of the node is one attempt's at a time, from before it starts until its last process is gone. Which GPUs are
//! the node's was decided by its provider.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use neap_protocol::{AttemptRef, GpuState};
use neap_sandbox::{Gpu, GpuUse, Launch, Nvml, VISIBLE, boot_ms};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::boot_log;
use crate::driver::Happening;
use crate::session::Input;

/// What the container runtime of the GPU's maker goes by.
const VISIBLE_IN_CONTAINERS: &str = "NVIDIA_VISIBLE_DEVICES";
/// Between two looks at how much a GPU is used.
const SAMPLE_MS: u64 = 2_000;
/// Before the first one, so that short attempts have one too.
const FIRST_SAMPLE_MS: u64 = 500;
/// How long an attempt waits for one before it to let go of its GPUs. It was told to end before this one came.
pub(crate) const WAIT_MS: u64 = 30_000;

#[derive(Debug, Default)]
pub(crate) struct Gpus {
    all: Vec<Gpu>,
    held: RefCell<Vec<Option<AttemptRef>>>,
    used: RefCell<Vec<Option<GpuUse>>>,
    freed: Notify,
    /// Of every GPU of the machine, by minor number.
    files: Vec<(u32, PathBuf)>,
    /// Opened when the first attempt has a GPU; none where it cannot be.
    nvml: tokio::sync::OnceCell<Option<Arc<Nvml>>>,
}

/// An attempt's GPUs, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    of: &'a Gpus,
    at: Vec<usize>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for at in &self.at {
            self.of.held.borrow_mut()[*at] = None;
            self.of.used.borrow_mut()[*at] = None;
        }
        self.of.freed.notify_waiters();
    }
}

impl Gpus {
    pub(crate) fn new(all: Vec<Gpu>) -> Self {
        let files = neap_sandbox::device_files(Path::new("/dev"));
        let (held, used) = (vec![None; all.len()], vec![None; all.len()]);
        Self { all, held: RefCell::new(held), used: RefCell::new(used), files, ..Self::default() }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// The device files of all of the machine's.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(_, file)| file.clone()).collect()
    }

    /// As the boot log has them.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.all.iter().map(|gpu| format!("GPU {}", described(gpu))).collect()
    }

    /// As the server is told.
    pub(crate) fn states(&self) -> Vec<GpuState> {
        let (held, used) = (self.held.borrow(), self.used.borrow());
        self.all
            .iter()
            .enumerate()
            .map(|(at, gpu)| GpuState {
                uuid: gpu.uuid.clone(),
                name: gpu.name.clone(),
                memory_mb: gpu.memory_mb,
                emulated: gpu.emulated,
                attempt: held[at],
                utilization: used[at].map(|used| used.utilization),
                memory_used_mb: used[at].map(|used| used.memory_used_mb),
            })
            .collect()
    }

    /// So many GPUs that no other attempt has, as soon as there are.
    pub(crate) async fn take(&self, attempt: AttemptRef, count: u32) -> Held<'_> {
        loop {
            let freed = self.freed.notified();
            if let Some(held) = self.take_now(attempt, count) {
                return held;
            }
            freed.await;
        }
    }

    fn take_now(&self, attempt: AttemptRef, count: u32) -> Option<Held<'_>> {
        let mut held = self.held.borrow_mut();
        let free = held.iter().enumerate().filter(|(_, holder)| holder.is_none()).map(|(at, _)| at);
        let at: Vec<usize> = free.take(count as usize).collect();
        if at.len() < count as usize {
            return None;
        }
        for at in &at {
            held[*at] = Some(attempt);
        }
        Some(Held { of: self, at })
    }
}

fn described(gpu: &Gpu) -> String {
    if gpu.emulated {
        format!("{} (emulated: there is no such GPU)", gpu.uuid)
    } else {
        format!("{} ({}, {} MB)", gpu.uuid, gpu.name, gpu.memory_mb)
    }
}

impl Held<'_> {
    fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        self.at.iter().map(|at| &self.of.all[*at])
    }

    fn names(&self) -> String {
        self.gpus().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn is_emulated(&self) -> bool {
        self.gpus().any(|gpu| gpu.emulated)
    }

    /// What the log of an attempt begins with, where its GPUs are none.
    pub(crate) fn first_line(&self) -> Option<String> {
        self.is_emulated().then(|| {
            format!(
                "[neap] The GPUs of this job are emulated ({}): the server was started with --emulate-gpus, and there is \
                 no GPU behind them. Code that asks for one finds none.\n",
                self.names()
            )
        })
    }

    /// Tells the launch which GPUs are its own, and closes the device files of all others.
    pub(crate) fn equip(&self, launch: &mut Launch) {
        let (cuda, containers) = if self.at.is_empty() {
            (String::new(), "void".to_owned())
        } else if self.is_emulated() {
            (self.names(), "void".to_owned())
        } else {
            (self.names(), self.names())
        };
        launch.env.retain(|(name, _)| name != VISIBLE && name != VISIBLE_IN_CONTAINERS);
        launch.env.push((VISIBLE.to_owned(), cuda));
        launch.env.push((VISIBLE_IN_CONTAINERS.to_owned(), containers));
        if let Some(view) = &mut launch.view {
            view.closed_devices = self.closed();
        }
    }

    /// The device files of GPUs that are not its own.
    fn closed(&self) -> Vec<PathBuf> {
        let own: Vec<u32> = self.gpus().filter(|gpu| !gpu.emulated).map(|gpu| gpu.minor).collect();
        let others = self.of.files.iter().filter(|(minor, _)| !own.contains(minor));
        others.map(|(_, file)| file.clone()).collect()
    }

    /// For the engine that makes its container; what is emulated cannot be given to one.
    pub(crate) fn for_container(&self) -> Vec<String> {
        self.gpus().filter(|gpu| !gpu.emulated).map(|gpu| gpu.uuid.clone()).collect()
    }

    /// For the job's properties, when it starts.
    pub(crate) fn facts(&self, closed: bool) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        if self.at.is_empty() {
            return facts;
        }
        let each: Vec<String> = self.gpus().map(described).collect();
        facts.insert("neap.gpus".to_owned(), each.join("; "));
        if self.is_emulated() {
            facts.insert("neap.gpu.emulated".to_owned(), "true".to_owned());
        } else {
            let how = if closed { "device files" } else { "variables only" };
            facts.insert("neap.gpu.separation".to_owned(), how.to_owned());
        }
        facts
    }

    /// Looks at the GPUs again and again, until dropped. `meter` has what was seen.
    pub(crate) async fn measure(
        &self,
        meter: &RefCell<Meter>,
        say: &UnboundedSender<Happening>,
    ) -> Infallible {
        let _ = say.send(Happening::Session(Input::Gpus { gpus: self.of.states() }));
        if self.at.is_empty() || self.is_emulated() {
            return std::future::pending().await;
        }
        let Some(nvml) = self.of.nvml.get_or_init(open).await.clone() else {
            return std::future::pending().await;
        };
        let uuids: Arc<[String]> = self.gpus().map(|gpu| gpu.uuid.clone()).collect();
        let mut pause = FIRST_SAMPLE_MS;
        loop {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            pause = SAMPLE_MS;
            let (nvml, uuids) = (nvml.clone(), uuids.clone());
            let look = move || uuids.iter().map(|uuid| nvml.used(uuid)).collect::<Vec<_>>();
            let Ok(seen) = tokio::task::spawn_blocking(look).await else { continue };
            meter.borrow_mut().add(&seen);
            for (at, used) in self.at.iter().zip(&seen) {
                self.of.used.borrow_mut()[*at] = *used;
            }
            let _ = say.send(Happening::Session(Input::Gpus { gpus: self.of.states() }));
        }
    }

    /// For the job's properties, when it is over.
    pub(crate) fn summary(&self, meter: &Meter) -> BTreeMap<String, String> {
        let total_mb = self.gpus().map(|gpu| gpu.memory_mb).sum();
        meter.summary(boot_ms(), total_mb)
    }
}

async fn open() -> Option<Arc<Nvml>> {
    match tokio::task::spawn_blocking(Nvml::open).await {
        Ok(Ok(nvml)) => Some(Arc::new(nvml)),
        Ok(Err(why)) => {
            boot_log::line(&format!("how much the GPUs are used is not known: {why}"));
            None
        }
        Err(_) => None,
    }
}

/// What was seen of an attempt's GPUs.
#[derive(Debug)]
pub(crate) struct Meter {
    since_ms: u64,
    /// Sum and count of what was seen, for each GPU.
    each: Vec<(u64, u64)>,
    utilization_max: u32,
    memory_max_mb: u64,
}

impl Meter {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { since_ms: now_ms, each: Vec::new(), utilization_max: 0, memory_max_mb: 0 }
    }

    fn add(&mut self, seen: &[Option<GpuUse>]) {
        self.each.resize(seen.len().max(self.each.len()), (0, 0));
        let mut memory_mb = 0;
        for ((sum, count), used) in self.each.iter_mut().zip(seen) {
            let Some(used) = used else { continue };
            *sum += u64::from(used.utilization);
            *count += 1;
            self.utilization_max = self.utilization_max.max(used.utilization);
            memory_mb += used.memory_used_mb;
        }
        self.memory_max_mb = self.memory_max_mb.max(memory_mb);
    }

    fn summary(&self, now_ms: u64, total_mb: u64) -> BTreeMap<String, String> {
        let mean = |sum: u64, count: u64| {
            (sum * 10).checked_div(count).map(|tenths| format!("{}.{}", tenths / 10, tenths % 10))
        };
        let (sum, count) = self.each.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let Some(all) = mean(sum, count) else { return BTreeMap::new() };
        let mut facts = BTreeMap::from([
            ("neap.gpu.utilization".to_owned(), all),
            ("neap.gpu.utilization_max".to_owned(), self.utilization_max.to_string()),
            ("neap.gpu.memory_mb".to_owned(), self.memory_max_mb.to_string()),
            ("neap.gpu.memory_total_mb".to_owned(), total_mb.to_string()),
            (
                "neap.gpu.measured_seconds".to_owned(),
                (now_ms.saturating_sub(self.since_ms) / 1000).to_string(),
            ),
        ]);
        if self.each.len() > 1 {
            let each: Vec<String> =
                self.each.iter().map(|(sum, count)| mean(*sum, *count).unwrap_or_default()).collect();
            facts.insert("neap.gpu.utilization_each".to_owned(), each.join(", "));
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AttemptRef = AttemptRef { job: 1, attempt: 1 };
    const B: AttemptRef = AttemptRef { job: 2, attempt: 1 };

    fn real(count: u32) -> Vec<Gpu> {
        let one =
            |gpu: Gpu| Gpu { uuid: format!("GPU-{}", gpu.minor), emulated: false, memory_mb: 100, ..gpu };
        neap_sandbox::emulated(count).into_iter().map(one).collect()
    }

    fn pool(count: u32) -> Gpus {
        let files = (0..4).map(|minor| (minor, PathBuf::from(format!("/dev/nvidia{minor}")))).collect();
        Gpus { files, ..Gpus::new(real(count)) }
    }

    #[test]
    fn no_gpu_is_in_two_attempts_and_all_come_back() {
        let pool = pool(3);
        let first = pool.take_now(A, 2).unwrap();
        assert_eq!(first.names(), "GPU-0,GPU-1");
        assert!(pool.take_now(B, 2).is_none(), "one is left");
        let second = pool.take_now(B, 1).unwrap();
        assert_eq!(second.names(), "GPU-2");
        assert_eq!(
            pool.states().iter().map(|gpu| gpu.attempt).collect::<Vec<_>>(),
            [Some(A), Some(A), Some(B)]
        );
        drop(first);
        assert_eq!(pool.take_now(B, 2).unwrap().names(), "GPU-0,GPU-1");
        assert_eq!(pool.take_now(B, 0).unwrap().names(), "");
    }

    #[tokio::test]
    async fn who_comes_too_early_waits_for_whoever_goes() {
        let pool = pool(1);
        let first = pool.take_now(A, 1).unwrap();
        let second = pool.take(B, 1);
        tokio::pin!(second);
        assert!(futures_util::FutureExt::now_or_never(second.as_mut()).is_none());
        drop(first);
        assert_eq!(second.await.names(), "GPU-0");
    }

    #[test]
    fn the_files_of_others_are_closed() {
        let pool = pool(2);
        let held = pool.take_now(A, 1).unwrap();
        let closed: Vec<String> = held.closed().iter().map(|file| file.display().to_string()).collect();
        assert_eq!(closed, ["/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"]);
        assert_eq!(pool.take_now(B, 0).unwrap().closed().len(), 4);
    }

    #[test]
    fn pretended_gpus_open_nothing_and_say_so() {
        let files = vec![(0, PathBuf::from("/dev/nvidia0"))];
        let pool = Gpus { files, ..Gpus::new(neap_sandbox::emulated(2)) };
        let held = pool.take_now(A, 1).unwrap();
        assert_eq!(held.closed().len(), 1);
        assert!(held.for_container().is_empty());
        assert!(held.first_line().is_some_and(|line| line.contains("GPU-emulated-0")));
        assert_eq!(held.facts(true).get("neap.gpu.emulated").map(String::as_str), Some("true"));
        assert_eq!(pool.take_now(B, 0).unwrap().first_line(), None);
    }

    #[test]
    fn means_over_time_and_gpus() {
        let mut meter = Meter::new(1_000);
        let seen = |utilization, memory_used_mb| Some(GpuUse { utilization, memory_used_mb });
        meter.add(&[seen(100, 10), seen(0, 5)]);
        meter.add(&[seen(51, 30), None]);
        let facts = meter.summary(33_500, 200);
        let fact = |key: &str| facts.get(&format!("neap.gpu.{key}")).map(String::as_str);
        assert_eq!(fact("utilization"), Some("50.3"));
        assert_eq!(fact("utilization_each"), Some("75.5, 0.0"));
        assert_eq!(fact("utilization_max"), Some("100"));
        assert_eq!((fact("memory_mb"), fact("memory_total_mb")), (Some("30"), Some("200")));
        assert_eq!(fact("measured_seconds"), Some("32"));
        assert!(Meter::new(0).summary(9, 9).is_empty(), "nothing was seen");
    }
}
