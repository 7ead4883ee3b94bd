//! What a conversation does with strangers, and with nodes that speak of what is not theirs.

use neap_core::{NodeId, State};
use neap_protocol::{
    AttemptRef, Down, FRAME_BYTES_MAX, HELLO_FRAME_BYTES_MAX, JOIN_FRAME_BYTES_MAX, LogChunk, NodeFacts,
    PROTOCOL_VERSION, Up,
};

use super::*;

struct Talk {
    conversation: Conversation,
    roster: Roster<u8>,
    state: State,
}

impl Talk {
    fn new(certified: Option<u64>) -> Self {
        Self {
            conversation: Conversation::new(1, certified.map(NodeId)),
            roster: Roster::default(),
            state: State::default(),
        }
    }

    fn hears(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        let mut view =
            View { roster: &mut self.roster, link: &7, state: &self.state, now: neap_core::Millis(1) };
        self.conversation.step(input, &mut view, &mut out);
        out
    }
}

fn join(node: u64) -> Input {
    let (protocol, token, csr_pem) = (PROTOCOL_VERSION, "garbage".into(), "csr".into());
    Input::Message(Up::Join { protocol, node, token, csr_pem })
}

fn hello(node: u64) -> Input {
    let (facts, attempts) = (NodeFacts::default(), Vec::new());
    Input::Message(Up::Hello { protocol: PROTOCOL_VERSION, node, facts, attempts })
}

fn chunk() -> LogChunk {
    let attempt = AttemptRef { job: 1, attempt: 1 };
    LogChunk { attempt, offset: 0, last: false, source: None, bytes: b"forged".to_vec() }
}

fn refusal(out: &[Output]) -> &str {
    match out {
        [Output::Say(Down::Refused { reason }), Output::End(_)] => reason,
        other => panic!("not a refusal: {other:?}"),
    }
}

#[test]
fn a_token_is_checked_before_anything_is_recorded() {
    let mut talk = Talk::new(None);
    let asked = talk.hears(join(7));
    assert_eq!(asked, [Output::Check { node: NodeId(7), token: "garbage".into() }]);
    assert!(talk.conversation.waits());
    let refused = talk.hears(Input::Checked(Err("it is not a join token".into())));
    assert_eq!(refusal(&refused), "it is not a join token");
    assert!(talk.hears(join(7)).is_empty(), "it is over");
}

#[test]
fn which_nodes_exist_is_told_to_nobody_without_a_token() {
    let mut talk = Talk::new(None);
    talk.hears(join(7));
    assert_eq!(refusal(&talk.hears(Input::Checked(Ok(())))), "nobody waits for node n-7");
}

#[test]
fn a_certificate_of_a_node_that_is_gone_opens_nothing() {
    let mut talk = Talk::new(Some(7));
    assert_eq!(refusal(&talk.hears(hello(7))), "node n-7 is not known any more");
    assert_eq!(talk.roster.connected(), 0);
    assert!(refusal(&Talk::new(Some(7)).hears(hello(8))).contains("not who its certificate says"));
    assert!(refusal(&Talk::new(None).hears(hello(7))).contains("not who its certificate says"));
}

#[test]
fn strangers_may_say_little() {
    assert_eq!(Talk::new(None).conversation.frame_bytes_max(), JOIN_FRAME_BYTES_MAX);
    assert_eq!(Talk::new(Some(7)).conversation.frame_bytes_max(), HELLO_FRAME_BYTES_MAX);
    let mut talk = Talk::new(None);
    talk.conversation.phase = Phase::In(NodeId(7));
    assert_eq!(talk.conversation.frame_bytes_max(), FRAME_BYTES_MAX);
}

#[test]
fn logs_come_over_the_nodes_current_connection_and_name_it() {
    let mut talk = Talk::new(Some(7));
    assert_eq!(refusal(&talk.hears(Input::Log(chunk()))), "log before hello");
    for (serial, current) in [(1, true), (2, false)] {
        let mut talk = Talk::new(Some(7));
        talk.conversation.phase = Phase::In(NodeId(7));
        assert!(talk.roster.enter(NodeId(7), serial, 0));
        let out = talk.hears(Input::Log(chunk()));
        let stored = out == [Output::StoreLog { node: NodeId(7), chunk: chunk() }];
        assert_eq!(stored, current, "{out:?}");
    }
}

#[test]
fn a_node_that_was_removed_gets_no_new_certificate() {
    let mut talk = Talk::new(Some(7));
    talk.conversation.phase = Phase::In(NodeId(7));
    assert!(talk.roster.enter(NodeId(7), 1, 0));
    let out = talk.hears(Input::Message(Up::Renew { csr_pem: "csr".into() }));
    assert_eq!(refusal(&out), "node n-7 is not known any more");
}
