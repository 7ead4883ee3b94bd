//! Connections between agents and the server. Within one, order is kept; across two, anything goes.

use neap_control::conversation::{Conversation, Input};
use neap_protocol::{Decoder, Down, Frame, Up, encode_log, encode_message};

use crate::faults::Fault;
use crate::world::{Happening, InstanceId, LinkId, World};
use neap_agent::session::Input as AgentInput;

#[derive(Debug)]
pub(crate) struct Link {
    pub instance: InstanceId,
    pub epoch: u64,
    pub agent_open: bool,
    pub server_open: bool,
    /// When what was last sent arrives, each way.
    up_at: u64,
    down_at: u64,
    /// Everything upwards takes this much longer.
    lag_ms: u64,
}

const DIAL_MS_MAX: u64 = 10_000;
const DIAL_PAUSE_MS: u64 = 100;
const DIAL_PAUSE_MS_MAX: u64 = 2_000;

impl World {
    pub fn dial(&mut self, id: InstanceId) {
        let serving = self.server.as_ref().is_some_and(|server| server.serving);
        let Some(instance) = self.instances.get_mut(&id).filter(|i| i.agent_lives()) else { return };
        if let Some(resumes) = instance.stands_still(self.now) {
            return self.at(resumes, Happening::Dial { instance: id });
        }
        if instance.link.is_some() {
            return;
        }
        let blocked = instance.blocked_up_until.max(instance.blocked_down_until);
        if !serving || blocked > self.now {
            let pause = instance.dial_pause_ms;
            instance.dial_pause_ms = (pause * 2).clamp(DIAL_PAUSE_MS, DIAL_PAUSE_MS_MAX);
            let heals = blocked.saturating_sub(self.now).min(DIAL_MS_MAX);
            return self.after(pause.max(heals).max(1), Happening::Dial { instance: id });
        }
        let lag_ms = if self.strikes(Fault::Reorder, 4) { self.rng.between(50, 9_000) } else { 0 };
        self.next_link += 1;
        let link = self.next_link;
        let epoch = self.epoch;
        let (up_at, down_at) = (self.now, self.now);
        self.links.insert(
            link,
            Link { instance: id, epoch, agent_open: true, server_open: true, up_at, down_at, lag_ms },
        );
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.link = Some(link);
        let node = instance.node;
        let certified = instance.certified.then_some(node);
        let token = instance.token.clone();
        if let Some(server) = &mut self.server {
            server.accepted += 1;
            server.talks.insert(link, Conversation::new(server.accepted, certified));
        }
        self.tell(format_args!("m-{id} (n-{node})"), || format!("dials: connection {link}"));
        if certified.is_some() {
            self.agent_hears(id, AgentInput::Connected);
        } else {
            let csr_pem = String::new();
            let protocol = neap_protocol::PROTOCOL_VERSION;
            self.send_up(link, Frame::Message(Up::Join { protocol, node: node.0, token, csr_pem }));
        }
    }

    pub fn send_up(&mut self, link: LinkId, frame: Frame<Up>) {
        let frame = if self.rng.once_in(16) { self.through_bytes(frame) } else { frame };
        let delay = self.delay();
        let Some(way) = self.links.get_mut(&link).filter(|l| l.agent_open) else { return };
        let Some(instance) = self.instances.get(&way.instance) else { return };
        let starts = self.now.max(instance.blocked_up_until);
        way.up_at = way.up_at.max(starts + delay + instance.slow_ms + way.lag_ms);
        let at = way.up_at;
        self.at(at, Happening::Up { link, frame: Box::new(frame) });
    }

    pub fn send_down(&mut self, link: LinkId, down: Down) {
        let delay = self.delay();
        let Some(way) = self.links.get_mut(&link).filter(|l| l.server_open) else { return };
        let blocked = self.instances.get(&way.instance).map_or(0, |i| i.blocked_down_until);
        way.down_at = way.down_at.max(self.now.max(blocked) + delay);
        let at = way.down_at;
        self.at(at, Happening::Down { link, down: Box::new(down) });
    }

    fn delay(&mut self) -> u64 {
        if self.strikes(Fault::Delay, 12) { self.rng.between(100, 5_000) } else { self.rng.between(0, 8) }
    }

    /// Through the real framing, cut anywhere.
    fn through_bytes(&mut self, frame: Frame<Up>) -> Frame<Up> {
        let mut bytes = Vec::new();
        match &frame {
            Frame::Message(message) => encode_message(message, &mut bytes),
            Frame::Log(chunk) => encode_log(chunk, &mut bytes),
        }
        let cut = usize::try_from(self.rng.below(bytes.len() as u64)).unwrap_or(0);
        let mut decoder = Decoder::default();
        decoder.feed(&bytes[..cut]);
        decoder.feed(&bytes[cut..]);
        match decoder.next::<Up>() {
            Ok(Some(read)) if read == frame => read,
            other => {
                self.broken("wire", format!("{frame:?} was read as {other:?}"));
                frame
            }
        }
    }

    pub fn up_arrives(&mut self, link: LinkId, frame: Frame<Up>) {
        let open = self.links.get(&link).is_some_and(|l| l.server_open && l.epoch == self.epoch);
        if open && self.server.is_some() {
            self.feed(
                link,
                match frame {
                    Frame::Message(message) => Input::Message(message),
                    Frame::Log(chunk) => Input::Log(chunk),
                },
            );
        }
    }

    pub fn down_arrives(&mut self, link: LinkId, down: Down) {
        let Some(way) = self.links.get(&link).filter(|l| l.agent_open) else { return };
        let id = way.instance;
        let joined = matches!(down, Down::Joined { .. });
        self.agent_hears(id, AgentInput::Down(down));
        if joined && let Some(instance) = self.instances.get_mut(&id).filter(|i| !i.certified) {
            instance.certified = true;
            self.agent_hears(id, AgentInput::Connected);
        }
    }

    /// The agent's end is closed at once; the server reads what is under way before it finds out.
    pub fn break_link(&mut self, link: LinkId, why: &'static str) {
        self.tell(format_args!("connection {link}"), || why.into());
        self.close_agent_end(link);
        let late = self.rng.between(0, if self.faults.has(Fault::Reorder) { 4_000 } else { 50 });
        if let Some(way) = self.links.get(&link).filter(|l| l.server_open) {
            let at = way.up_at.max(self.now) + late;
            self.at(at, Happening::ClosedAtServer { link });
        }
    }

    pub fn close_agent_end(&mut self, link: LinkId) {
        let Some(way) = self.links.get_mut(&link).filter(|l| l.agent_open) else { return };
        way.agent_open = false;
        let id = way.instance;
        let Some(instance) = self.instances.get_mut(&id).filter(|i| i.link == Some(link)) else { return };
        instance.link = None;
        instance.dial_pause_ms = DIAL_PAUSE_MS;
        if instance.agent_lives() {
            self.agent_hears(id, AgentInput::Disconnected);
            self.after(DIAL_PAUSE_MS, Happening::Dial { instance: id });
        }
    }

    pub fn closed_at_agent(&mut self, link: LinkId) {
        self.close_agent_end(link);
        self.links.remove(&link);
    }

    pub fn closed_at_server(&mut self, link: LinkId) {
        let Some(way) = self.links.get_mut(&link) else { return };
        way.server_open = false;
        if way.epoch == self.epoch
            && let Some(server) = &mut self.server
            && let Some(talk) = server.talks.remove(&link)
            && let Some(node) = talk.node()
        {
            server.roster.leave(node, talk.serial());
        }
        if self.links.get(&link).is_some_and(|l| !l.agent_open) {
            self.links.remove(&link);
        }
    }

    /// The server hangs up; what it said last arrives first.
    pub fn server_hangs_up(&mut self, link: LinkId) {
        self.closed_at_server(link);
        if let Some(way) = self.links.get(&link) {
            let at = way.down_at.max(self.now) + 1;
            self.at(at, Happening::ClosedAtAgent { link });
        }
    }

    pub fn partition(&mut self, id: InstanceId, up: bool, until: u64) {
        self.tell(format_args!("m-{id}"), || {
            format!("nothing passes {} until {} ms", if up { "up" } else { "down" }, until)
        });
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if up {
            instance.blocked_up_until = until;
        } else {
            instance.blocked_down_until = until;
        }
    }
}
