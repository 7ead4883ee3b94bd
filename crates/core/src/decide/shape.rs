//! The shape of a family that is asked for: who is part of whom, who waits for whom, and that nobody waits in a circle.

use crate::command::{NewMember, NewMemberKind};
use crate::family::FamilyKind;
use crate::limits;
use crate::problem::{Code, Problem};

/// Everything that is wrong with it.
pub(super) fn check(members: &[NewMember], problems: &mut Vec<Problem>) {
    let problems_before = problems.len();
    for (at, member) in members.iter().enumerate() {
        let ordered = if at == 0 {
            matches!(member.what, NewMemberKind::Family { .. }) && member.after.is_empty()
        } else {
            // What an event names has to be there: a family comes before its members, and so does what they wait for.
            member.family < at
                && is_pipeline(members, member.family)
                && member.after.iter().all(|other| *other < at)
        };
        if !ordered {
            problems.push(Problem::new(
                Code::BadArgument,
                format!("The step '{}' waits for itself, or is part of no pipeline.", member.name),
            ));
        }
    }
    if problems.len() > problems_before {
        return;
    }
    let too_deep =
        |(member, depth): &(&NewMember, usize)| is_family(member) && *depth > limits::FAMILY_DEPTH_MAX;
    if let Some((member, _)) = members.iter().zip(depths(members)).find(too_deep) {
        problems.push(Problem::new(
            Code::LimitReached,
            format!(
                "The pipeline '{}' lies more than {} deep within others, which is the limit.",
                member.name,
                limits::FAMILY_DEPTH_MAX
            ),
        ));
    }
    for at in in_a_circle(members) {
        problems.push(Problem::new(
            Code::BadArgument,
            format!("The step '{}' waits for something that waits for it.", members[at].name),
        ));
    }
}

/// Who has to wait: for others, or because its family does.
pub(super) fn waits(members: &[NewMember]) -> Vec<bool> {
    let mut waits: Vec<bool> = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        let with_family = at > 0 && waits.get(member.family).copied().unwrap_or_default();
        waits.push(with_family || !member.after.is_empty());
    }
    waits
}

fn is_family(member: &NewMember) -> bool {
    matches!(member.what, NewMemberKind::Family { .. })
}

fn is_pipeline(members: &[NewMember], at: usize) -> bool {
    let what = members.get(at).map(|member| &member.what);
    matches!(what, Some(NewMemberKind::Family { kind: FamilyKind::Steps { .. }, .. }))
}

/// How many families each lies within.
fn depths(members: &[NewMember]) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        depths.push(if at == 0 { 0 } else { depths[member.family] + 1 });
    }
    depths
}

/// A member starts after its family does and after what it waits for has ended; a family ends after its members.
/// Whoever can never start by these rules, in order.
fn in_a_circle(members: &[NewMember]) -> Vec<usize> {
    let (start, end) = (|at: usize| 2 * at, |at: usize| 2 * at + 1);
    let mut before = vec![0_usize; 2 * members.len()];
    let mut follows: Vec<Vec<usize>> = vec![Vec::new(); 2 * members.len()];
    let mut first = |one: usize, then: usize| {
        follows[one].push(then);
        before[then] += 1;
    };
    for (at, member) in members.iter().enumerate() {
        first(start(at), end(at));
        if at > 0 {
            first(start(member.family), start(at));
            first(end(at), end(member.family));
        }
        for other in &member.after {
            first(end(*other), start(at));
        }
    }
    let mut ready: Vec<usize> = (0..before.len()).filter(|moment| before[*moment] == 0).collect();
    while let Some(moment) = ready.pop() {
        for next in &follows[moment] {
            before[*next] -= 1;
            if before[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    (0..members.len()).filter(|at| before[start(*at)] > 0).collect()
}
