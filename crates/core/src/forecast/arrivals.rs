//! Who will come, for all anybody knows: those who came at this time yesterday, a little sooner or later in each course. Where
//! the past is shorter than a day, it is taken to repeat itself.

use imbl::Vector;

use super::times::scattered;
use crate::command::{Command, SubmitJob};
use crate::history::Arrival;
use crate::ids::DocHash;
use crate::limits::{ARRIVALS_JITTER_MS, ARRIVALS_PERIOD_MS};
use crate::mix::TierChoice;
use crate::state::State;
use crate::units::Millis;

/// How often one that came comes again: in so many of a thousand cases never, at most once, twice, three times. Numbers of
/// independent comers spread like this (Poisson), around 60, 80, 100, 120 and 140 %: days are not all as busy as each other.
const COPIES: [[u64; 4]; 5] = [
    [549, 878, 977, 997],
    [449, 809, 953, 991],
    [368, 736, 920, 981],
    [301, 663, 879, 966],
    [247, 592, 833, 946],
];

/// In the order in which they come, no more than one period ahead.
pub fn arrivals(state: &State, now: Millis, course: u32) -> Vec<(Millis, Command)> {
    let mut coming: Vec<(Millis, Command)> = Vec::new();
    for (id, past) in state.history.arrivals() {
        let (Some(cluster), Some(first)) = (state.clusters.get(&id), past.front()) else { continue };
        let known_ms = now.since(first.at);
        if cluster.is_deleting() || known_ms < ARRIVALS_JITTER_MS {
            continue;
        }
        for (number, arrival, copy) in copies(past, u64::from(course)) {
            let luck = scattered(u64::from(course) << 40 ^ (number as u64) << 8 ^ copy);
            let jitter = luck % (2 * ARRIVALS_JITTER_MS);
            let back_ms = (ARRIVALS_PERIOD_MS + jitter).saturating_sub(ARRIVALS_JITTER_MS).min(known_ms);
            let at = arrival.at.plus(back_ms);
            if at <= now {
                continue;
            }
            let submit = SubmitJob {
                workspace: cluster.workspace,
                // Should somebody have called a job so, this one does not come.
                name: format!("0-arrival-{id}-{number}-{copy}").into(),
                cluster: cluster.name.clone(),
                owner: arrival.owner.clone(),
                priority: arrival.priority,
                need: arrival.need,
                nodes: arrival.nodes,
                family: None,
                like: arrival.like,
                tags: Vec::new(),
                timeout_ms: arrival.timeout_ms,
                retry: None,
                // Those who came before are not known by their choice of tier.
                tier: TierChoice::default(),
                document: DocHash([0; 32]),
                meta: DocHash([0; 32]),
                problems: Vec::new(),
            };
            coming.push((at, Command::SubmitJob(submit)));
        }
    }
    coming.sort_by_key(|(at, _)| *at);
    coming
}

/// Those who came, as often as they come in this course.
fn copies(past: &Vector<Arrival>, course: u64) -> impl Iterator<Item = (usize, &Arrival, u64)> {
    let as_busy = usize::try_from(course % 5).map_or(COPIES[2], |at| COPIES[at]);
    past.iter().enumerate().flat_map(move |(number, arrival)| {
        let luck = scattered(!(course << 40 ^ number as u64)) % 1_000;
        let times = as_busy.iter().filter(|below| luck >= **below).count() as u64;
        (0..times).map(move |copy| (number, arrival, copy))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Need;

    #[test]
    fn as_many_come_as_came_and_not_always_the_same() {
        let arrival = |at| Arrival {
            at: Millis(at),
            owner: "me".into(),
            priority: 1,
            need: Need::Whole,
            nodes: 1,
            timeout_ms: None,
            like: None,
        };
        let past: Vector<Arrival> = (0..500).map(arrival).collect();
        let counts: Vec<usize> = (0..31).map(|course| copies(&past, course).count()).collect();
        let mean = counts.iter().sum::<usize>() / counts.len();
        assert!((470..=530).contains(&mean), "{counts:?}");
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least < 320 && *most > 680, "{counts:?}");
    }
}
