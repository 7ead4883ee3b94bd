//! Running worlds: one seed, many seeds, and making a failing one small.

use neap_core::invariants::Violation;

use crate::checks::{FORSAKEN_MS_MAX, REST_MS_MAX};
use crate::world::{Options, World};

/// What became of a world.
#[derive(Debug)]
pub struct Outcome {
    pub steps: u64,
    pub virtual_ms: u64,
    pub events: u64,
    pub violation: Option<Violation>,
    /// Empty unless asked for.
    pub story: String,
}

/// Runs one world: faults for so many steps, then calm until everything is at rest.
pub fn run(options: &Options) -> Outcome {
    let mut world = World::new(options);
    while world.steps < options.steps && world.violation.is_none() {
        world.step();
    }
    if world.violation.is_none() {
        world.becomes_calm();
        if world.forsaken_at.is_some() { run_forsaken(&mut world) } else { run_to_rest(&mut world) }
    }
    if world.violation.is_none() {
        world.scan();
        let found = world.checks.jobs(&world.disk.shadow);
        world.report_all(found);
        if let Err(what) = world.disk.verify() {
            world.broken("A1", what);
        }
    }
    Outcome {
        steps: world.steps,
        virtual_ms: world.now,
        events: world.disk.records() as u64,
        story: world.take_story(),
        violation: world.violation,
    }
}

/// L1.
fn run_to_rest(world: &mut World) {
    let deadline = world.now + REST_MS_MAX;
    let mut looked_at = world.now;
    while world.violation.is_none() {
        world.step();
        if world.now >= looked_at + 1_000 {
            looked_at = world.now;
            match world.is_at_rest() {
                Ok(()) => return,
                Err(what) if world.now >= deadline => {
                    return world
                        .broken("L1", format!("{} s after the last fault {what}", REST_MS_MAX / 1000));
                }
                Err(_) => {}
            }
        }
    }
}

fn run_forsaken(world: &mut World) {
    let deadline = world.now + FORSAKEN_MS_MAX;
    while world.now < deadline && world.violation.is_none() {
        world.step();
    }
    world.check_forsaken();
}

/// The fewest steps with faults after which this seed still breaks the same promise; chance is the same up to there.
pub fn shrink(options: &Options, violation: &Violation) -> Options {
    let breaks = |steps: u64| {
        let found = run(&Options { steps, story: false, ..*options }).violation;
        found.is_some_and(|v| v.invariant == violation.invariant)
    };
    let mut best = options.steps;
    let mut stride = best / 2;
    while stride > 0 {
        while best > stride && breaks(best - stride) {
            best -= stride;
        }
        stride /= 2;
    }
    Options { steps: best, ..*options }
}
