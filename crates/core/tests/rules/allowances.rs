//! How much one may have at a time: setting it, changing it, taking it away.

use neap_core::allowance::{Allowance, AllowanceKey, Who, Within};
use neap_core::event::{AllowanceSet, Event};
use neap_core::limits::ALLOWANCES_MAX;
use neap_core::{ClusterId, Code, Command, WorkspaceId};

use crate::world::{CPU, WORKSPACE, World, settings};

const ONE_JOB: Option<Allowance> = Some(Allowance { jobs: Some(1), cores: None });
const TWO_CORES: Option<Allowance> = Some(Allowance { jobs: None, cores: Some(2) });

fn key(within: Within, who: Who) -> AllowanceKey {
    AllowanceKey { within, who }
}

fn set(key: AllowanceKey, allowance: Option<Allowance>) -> Command {
    Command::SetAllowance { key, allowance, by: "owner".into() }
}

fn of(user: &str) -> AllowanceKey {
    key(Within::Workspace(WORKSPACE), Who::User(user.into()))
}

#[test]
fn it_is_set_once_changed_and_taken_away() {
    let mut world = World::with_cluster(0, 1);
    let event = |allowance| Event::from(AllowanceSet { key: of("ann"), allowance, by: "owner".into() });
    assert_eq!(world.ask(set(of("ann"), None)), Ok(vec![]), "there is none to take away");
    for allowance in [ONE_JOB, TWO_CORES, None] {
        assert_eq!(world.ask(set(of("ann"), allowance)), Ok(vec![event(allowance)]));
        world.tell(set(of("ann"), allowance));
        assert_eq!(world.state.allowances.get(&of("ann")).copied(), allowance);
        assert_eq!(world.ask(set(of("ann"), allowance)), Ok(vec![]), "the same again is no news");
    }
}

#[test]
fn it_is_for_something_that_is_there_and_says_how_much() {
    let world = World::with_cluster(0, 1);
    for within in [Within::Workspace(WORKSPACE), Within::Cluster(CPU)] {
        assert!(world.ask(set(key(within, Who::EachUser), ONE_JOB)).is_ok(), "{within:?}");
    }
    for within in [Within::Workspace(WorkspaceId(9)), Within::Cluster(ClusterId(9))] {
        assert_eq!(world.refused(set(key(within, Who::EachUser), ONE_JOB)), [Code::ResourceNotFound]);
    }
    let nothing = Some(Allowance { jobs: None, cores: None });
    assert_eq!(world.refused(set(of("ann"), nothing)), [Code::BadArgument]);
    for allowance in [ONE_JOB, TWO_CORES, Some(Allowance { jobs: Some(0), cores: Some(0) })] {
        assert!(world.ask(set(of("ann"), allowance)).is_ok(), "{allowance:?}");
    }
}

#[test]
fn a_team_is_known_or_has_its_limit_taken_away() {
    let team = |name: &str| key(Within::Cluster(CPU), Who::Team(name.into()));
    let with_teams = |names: &[&str]| {
        settings(|s| s.teams = names.iter().map(|name| ((*name).into(), Default::default())).collect())
    };
    let mut world = World::with(with_teams(&["sound", "vision"]));
    world.scale(0, 1);
    world.tell(set(team("vision"), ONE_JOB));
    let why = world.ask(set(team("text"), ONE_JOB)).unwrap_err();
    assert_eq!(why.code(), Code::BadArgument);
    assert!(why.to_string().contains("has: sound, vision."), "{why}");
    world.tell(Command::Start { release: "next".into(), settings: with_teams(&[]) });
    let why = world.ask(set(team("vision"), TWO_CORES)).unwrap_err().to_string();
    assert!(why.contains("has: none."), "{why}");
    world.tell(set(team("vision"), None));
    assert!(world.state.allowances.is_empty(), "of a team that is no more, too");
}

#[test]
fn there_are_so_many_and_no_more() {
    let mut world = World::with_cluster(0, 1);
    let one = |number: usize| set(of(&format!("user{number}")), ONE_JOB);
    world.batch((1..ALLOWANCES_MAX).map(one));
    world.tell(one(ALLOWANCES_MAX));
    assert_eq!(world.refused(one(ALLOWANCES_MAX + 1)), [Code::LimitReached]);
    world.tell(set(of("user2"), TWO_CORES));
    world.tell(set(of("user1"), None));
    world.tell(one(ALLOWANCES_MAX + 1));
}
