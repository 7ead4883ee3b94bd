//! What the agent does next, decided without doing it: inputs with the time, outputs for the driver.
//!
//! It has no clock, no socket, no file. The driver feeds it and performs what it says, in order.

use std::collections::{BTreeMap, VecDeque};

use neap_protocol::{
    AttemptRef, AttemptSpec, Down, Exit, FailureClass, GpuState, KnownAttempt, LOG_CHUNK_BYTES_MAX,
    NodeFacts, PROTOCOL_VERSION, Report, Secret, ServiceState, StopWhy, Up,
};

/// A node that was never welcomed gives up after this long: nobody may know that it exists.
pub const JOIN_MS_MAX: u64 = 120_000;
/// Log bytes under way and not yet acknowledged, per attempt.
pub const LOG_WINDOW_BYTES: u64 = 1024 * 1024;
/// After this many heartbeats without an answer the connection counts as dead.
const UNANSWERED_MAX: u64 = 4;
/// Told to leave, the agent waits this long beyond the grace for its reports to be acknowledged.
const LEAVE_MARGIN_MS: u64 = 10_000;

#[derive(Debug)]
pub enum Input {
    /// A connection stands and is authenticated.
    Connected,
    Disconnected,
    Down(Down),
    /// From here on: what became of an attempt.
    Started {
        attempt: AttemptRef,
        properties: BTreeMap<String, String>,
    },
    /// This many bytes of its log can be read.
    LogGrew {
        attempt: AttemptRef,
        bytes: u64,
    },
    /// What it used, now that its processes have ended.
    Measured {
        attempt: AttemptRef,
        facts: BTreeMap<String, String>,
    },
    Finalizing {
        attempt: AttemptRef,
    },
    /// Its processes are gone, its uploads done, its log complete with this many bytes.
    Ended {
        attempt: AttemptRef,
        exit: Exit,
        log_bytes: u64,
    },
    /// How its services are.
    Services {
        attempt: AttemptRef,
        services: Vec<ServiceState>,
    },
    /// How the node's GPUs are.
    Gpus {
        gpus: Vec<GpuState>,
    },
    Timer,
}

#[derive(Debug, PartialEq)]
pub enum Output {
    Send(Up),
    /// Read this piece of the log and send it.
    ShipLog {
        attempt: AttemptRef,
        offset: u64,
        bytes: usize,
        last: bool,
    },
    Launch {
        attempt: AttemptRef,
        spec: Box<AttemptSpec>,
    },
    Stop {
        attempt: AttemptRef,
        grace_ms: u64,
        why: StopWhy,
    },
    /// End it if it runs, and delete its folder when it is gone.
    Discard {
        attempt: AttemptRef,
    },
    /// Attempts may run until then.
    Lease {
        until_boot_ms: u64,
    },
    /// Bring this stream of a service to the server.
    OpenStream {
        attempt: AttemptRef,
        stream: Secret,
        service: String,
    },
    /// Hang up and dial again.
    Reconnect,
    Exit(ExitReason),
}

/// Why the agent ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    Left,
    Refused(String),
    LeaseLost,
    NeverWelcomed,
}

#[derive(Debug)]
pub struct Session {
    node: u64,
    facts: NodeFacts,
    connected: bool,
    welcomed: bool,
    lease_ttl_ms: u64,
    heartbeat_ms: u64,
    hello_sent_ms: u64,
    /// The last heartbeat that was answered, by when it was sent.
    answered_ms: u64,
    lease_until_ms: u64,
    heartbeat_at_ms: u64,
    leave_by_ms: Option<u64>,
    attempts: BTreeMap<AttemptRef, Attempt>,
    /// As they were last told.
    gpus: Vec<GpuState>,
    over: bool,
}

#[derive(Debug, Default)]
struct Attempt {
    reports: VecDeque<(u64, Report)>,
    last_number: u64,
    /// Reports up to this number were sent over the present connection.
    sent_number: u64,
    ended: bool,
    log_bytes: u64,
    log_sent: u64,
    log_acknowledged: u64,
    /// The last chunk was sent over the present connection.
    last_sent: bool,
    /// As they were last told.
    services: Vec<ServiceState>,
}

impl Attempt {
    fn services_told(&self, attempt: AttemptRef) -> Output {
        Output::Send(Up::Services { attempt, services: self.services.clone() })
    }
}

impl Session {
    pub fn new(node: u64, facts: NodeFacts, now_ms: u64) -> Self {
        Self {
            node,
            facts,
            connected: false,
            welcomed: false,
            lease_ttl_ms: 0,
            heartbeat_ms: 0,
            hello_sent_ms: 0,
            answered_ms: 0,
            lease_until_ms: now_ms + JOIN_MS_MAX,
            heartbeat_at_ms: u64::MAX,
            leave_by_ms: None,
            attempts: BTreeMap::new(),
            gpus: Vec::new(),
            over: false,
        }
    }

    /// When to feed [`Input::Timer`] at the latest.
    pub fn wake_at_ms(&self) -> u64 {
        self.lease_until_ms.min(self.heartbeat_at_ms).min(self.leave_by_ms.unwrap_or(u64::MAX))
    }

    pub fn step(&mut self, now_ms: u64, input: Input, out: &mut Vec<Output>) {
        if self.over {
            return;
        }
        match input {
            Input::Connected => self.connected(now_ms, out),
            Input::Disconnected => {
                self.connected = false;
                self.welcomed = false;
                self.heartbeat_at_ms = u64::MAX;
            }
            Input::Down(down) => self.heard(now_ms, down, out),
            Input::Started { attempt, properties } => {
                self.report(attempt, Report::Started { properties }, out);
            }
            Input::Measured { attempt, facts } => self.report(attempt, Report::Measured { facts }, out),
            Input::Gpus { gpus } => {
                if self.welcomed && self.gpus != gpus {
                    out.push(Output::Send(Up::Gpus { gpus: gpus.clone() }));
                }
                self.gpus = gpus;
            }
            Input::Finalizing { attempt } => self.report(attempt, Report::Finalizing, out),
            Input::LogGrew { attempt, bytes } => {
                if let Some(known) = self.attempts.get_mut(&attempt) {
                    known.log_bytes = known.log_bytes.max(bytes);
                }
                self.flush(attempt, out);
            }
            Input::Ended { attempt, exit, log_bytes } => {
                if let Some(known) = self.attempts.get_mut(&attempt) {
                    known.log_bytes = log_bytes;
                    known.ended = true;
                }
                self.report(attempt, Report::Ended { exit }, out);
            }
            Input::Services { attempt, services } => {
                if let Some(known) = self.attempts.get_mut(&attempt) {
                    known.services = services;
                    if self.welcomed {
                        out.push(known.services_told(attempt));
                    }
                }
            }
            Input::Timer => {}
        }
        self.pass_time(now_ms, out);
    }

    fn connected(&mut self, now_ms: u64, out: &mut Vec<Output>) {
        self.connected = true;
        self.hello_sent_ms = now_ms;
        let attempts = self.attempts.iter().map(|(attempt, known)| KnownAttempt {
            attempt: *attempt,
            last_report: known.last_number,
            running: !known.ended,
        });
        out.push(Output::Send(Up::Hello {
            protocol: PROTOCOL_VERSION,
            node: self.node,
            facts: self.facts.clone(),
            attempts: attempts.collect(),
        }));
    }

    fn heard(&mut self, now_ms: u64, down: Down, out: &mut Vec<Output>) {
        match down {
            // Certificates are the driver's affair.
            Down::Joined { .. } => {}
            Down::Welcome { lease_ttl_ms, heartbeat_ms, .. } => {
                self.welcomed = true;
                self.lease_ttl_ms = lease_ttl_ms;
                self.heartbeat_ms = heartbeat_ms.max(1);
                self.renewed(self.hello_sent_ms, out);
                self.heartbeat_at_ms = now_ms + self.heartbeat_ms;
                for known in self.attempts.values_mut() {
                    known.sent_number = 0;
                    known.log_sent = known.log_acknowledged;
                    known.last_sent = false;
                }
                if !self.gpus.is_empty() {
                    out.push(Output::Send(Up::Gpus { gpus: self.gpus.clone() }));
                }
                let with_services = self.attempts.iter().filter(|(_, known)| !known.services.is_empty());
                out.extend(with_services.map(|(attempt, known)| known.services_told(*attempt)));
                for attempt in self.attempts.keys().copied().collect::<Vec<_>>() {
                    self.flush(attempt, out);
                }
            }
            Down::Refused { reason } => self.end(ExitReason::Refused(reason), out),
            Down::LeaseRenewed { sent_boot_ms, heartbeat_ms, .. } => {
                if heartbeat_ms > 0 && self.welcomed {
                    self.heartbeat_ms = heartbeat_ms;
                    // The server's patience is that of the new pace already.
                    self.heartbeat_at_ms = self.heartbeat_at_ms.min(now_ms + heartbeat_ms);
                }
                self.renewed(sent_boot_ms.min(now_ms), out);
            }
            Down::Start { attempt, spec } => {
                if self.leave_by_ms.is_none() && !self.attempts.contains_key(&attempt) {
                    self.attempts.insert(attempt, Attempt::default());
                    out.push(Output::Launch { attempt, spec });
                }
            }
            Down::Stop { attempt, grace_ms, why } => self.stop(attempt, grace_ms, why, out),
            Down::ReportAcknowledged { attempt, number } => {
                if let Some(known) = self.attempts.get_mut(&attempt) {
                    known.reports.retain(|(n, _)| *n > number);
                    self.discard_if_done(attempt, out);
                }
            }
            Down::LogAcknowledged { attempt, offset } => {
                if let Some(known) = self.attempts.get_mut(&attempt) {
                    known.log_acknowledged = known.log_acknowledged.max(offset.min(known.log_bytes));
                    known.log_sent = known.log_sent.max(known.log_acknowledged);
                    self.flush(attempt, out);
                    self.discard_if_done(attempt, out);
                }
            }
            Down::Forget { attempt } => {
                self.attempts.remove(&attempt);
                out.push(Output::Discard { attempt });
            }
            Down::OpenStream { stream, attempt, service } => match self.attempts.get(&attempt) {
                Some(known) if !known.ended => out.push(Output::OpenStream { attempt, stream, service }),
                Some(_) | None => {
                    let reason = "the attempt does not run here".to_owned();
                    out.push(Output::Send(Up::StreamFailed { stream, reason }));
                }
            },
            Down::Leave { grace_ms } => {
                self.leave_by_ms = Some(now_ms.saturating_add(grace_ms).saturating_add(LEAVE_MARGIN_MS));
                for (attempt, _) in self.attempts.iter().filter(|(_, known)| !known.ended) {
                    out.push(Output::Stop { attempt: *attempt, grace_ms, why: StopWhy::End });
                }
            }
        }
    }

    fn renewed(&mut self, sent_ms: u64, out: &mut Vec<Output>) {
        self.answered_ms = self.answered_ms.max(sent_ms);
        self.lease_until_ms = self.answered_ms + self.lease_ttl_ms;
        out.push(Output::Lease { until_boot_ms: self.lease_until_ms });
    }

    fn stop(&mut self, attempt: AttemptRef, grace_ms: u64, why: StopWhy, out: &mut Vec<Output>) {
        match self.attempts.get_mut(&attempt) {
            None => out.push(Output::Send(Up::Report {
                attempt,
                number: 1,
                body: Report::Ended { exit: Exit::Stopped },
            })),
            Some(known) if known.ended => {
                known.sent_number = known.sent_number.min(known.last_number.saturating_sub(1));
                self.flush(attempt, out);
            }
            Some(_) => out.push(Output::Stop { attempt, grace_ms, why }),
        }
    }

    fn report(&mut self, attempt: AttemptRef, body: Report, out: &mut Vec<Output>) {
        let Some(known) = self.attempts.get_mut(&attempt) else { return };
        known.last_number += 1;
        known.reports.push_back((known.last_number, body));
        self.flush(attempt, out);
    }

    /// Sends what this attempt has to send and has not sent over this connection. Its end is told after the
    /// last byte of its log, so that whoever hears of the one has the other.
    fn flush(&mut self, attempt: AttemptRef, out: &mut Vec<Output>) {
        if !self.welcomed {
            return;
        }
        let Some(known) = self.attempts.get_mut(&attempt) else { return };
        for (number, body) in &known.reports {
            if *number > known.sent_number && !matches!(body, Report::Ended { .. }) {
                known.sent_number = *number;
                out.push(Output::Send(Up::Report { attempt, number: *number, body: body.clone() }));
            }
        }
        while !known.last_sent {
            let room = (known.log_acknowledged + LOG_WINDOW_BYTES).saturating_sub(known.log_sent);
            let bytes = (known.log_bytes - known.log_sent).min(room).min(LOG_CHUNK_BYTES_MAX as u64);
            let last = known.ended && known.log_sent + bytes == known.log_bytes;
            if bytes == 0 && !last {
                break;
            }
            out.push(Output::ShipLog { attempt, offset: known.log_sent, bytes: bytes as usize, last });
            known.log_sent += bytes;
            known.last_sent = last;
        }
        if let Some((number, body)) =
            known.reports.back().filter(|(n, _)| known.last_sent && *n > known.sent_number)
        {
            known.sent_number = *number;
            out.push(Output::Send(Up::Report { attempt, number: *number, body: body.clone() }));
        }
    }

    fn discard_if_done(&mut self, attempt: AttemptRef, out: &mut Vec<Output>) {
        let done = self.attempts.get(&attempt).is_some_and(|known| {
            known.ended && known.reports.is_empty() && known.log_acknowledged >= known.log_bytes
        });
        if done {
            self.attempts.remove(&attempt);
            out.push(Output::Discard { attempt });
        }
    }

    fn pass_time(&mut self, now_ms: u64, out: &mut Vec<Output>) {
        if self.over {
            return;
        }
        if now_ms >= self.lease_until_ms {
            let reason =
                if self.lease_ttl_ms == 0 { ExitReason::NeverWelcomed } else { ExitReason::LeaseLost };
            return self.end(reason, out);
        }
        if let Some(by) = self.leave_by_ms
            && (self.attempts.is_empty() || now_ms >= by)
        {
            return self.end(ExitReason::Left, out);
        }
        if self.welcomed && now_ms >= self.heartbeat_at_ms {
            let silent_ms = now_ms - self.answered_ms.max(self.hello_sent_ms);
            if silent_ms > self.heartbeat_ms * UNANSWERED_MAX {
                self.heartbeat_at_ms = u64::MAX;
                self.welcomed = false;
                out.push(Output::Reconnect);
            } else {
                self.heartbeat_at_ms = now_ms + self.heartbeat_ms;
                out.push(Output::Send(Up::Heartbeat { sent_boot_ms: now_ms }));
            }
        }
    }

    fn end(&mut self, reason: ExitReason, out: &mut Vec<Output>) {
        self.over = true;
        for (attempt, known) in &self.attempts {
            if !known.ended {
                out.push(Output::Stop { attempt: *attempt, grace_ms: 0, why: StopWhy::End });
            }
        }
        out.push(Output::Exit(reason));
    }
}

/// An attempt that never ran.
pub fn prepare_failed(class: FailureClass, message: impl Into<String>) -> Exit {
    let message = message.into();
    Exit::PrepareFailed { class: closer(class, &message), message }
}

/// What the blob face says when a store elsewhere does not take the datastore's credentials.
const DENIED: &str = "AuthorizationFailure";
/// What the system says when a disk is full, by whatever way the words came.
const NO_ROOM: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// Whose matter it is, more closely than by what was being done.
fn closer(class: FailureClass, message: &str) -> FailureClass {
    if NO_ROOM.iter().any(|words| message.contains(words)) {
        FailureClass::Capacity
    } else if message.contains(DENIED) {
        FailureClass::Identity
    } else {
        class
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
