//! Reports that count, and all that do not: foreign, forged, replayed, late, of another life; floods; orders and where they go.

use super::*;
use crate::pure::feedback::acceptance::Obedience;
use crate::pure::feedback::guard::STRANGER_RATE;
use crate::pure::feedback::report::{Figures, Report};
use crate::pure::feedback::wire::{Nonce, SignedOrder, seal_report};

const WALL: UnixNanos = UnixNanos(1_800_000_000_000_000_000);

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn wall(millis: u64) -> UnixNanos {
    WALL + Duration::from_millis(millis)
}

fn id(server: &str) -> ServerId {
    ServerId { pool: "app".into(), server: server.into() }
}

fn master() -> MasterKey {
    MasterKey::from_bytes(&[7; 32])
}

fn reception(secret: u8) -> Reception {
    let mut reception = Reception::new(master(), &[secret; SECRET_LENGTH], at(0));
    let sources = Sources::new(&[Cidr { address: [10, 0, 0, 0].into(), prefix: 8 }]);
    let servers = [(id("a"), ServerSlot(3)), (id("b"), ServerSlot(4))];
    assert_eq!(reception.follow(servers.into_iter(), sources), []);
    reception
}

/// An agent as the wire form has it.
struct Agent {
    name: ServerName,
    keys: AgentKeys,
    obedience: Obedience,
    from: SocketAddr,
    boot: u64,
    sequence: u64,
}

impl Agent {
    fn new(server: &str) -> Self {
        let name = ServerName::of(&id(server)).unwrap();
        let keys = master().pair(&name).unwrap();
        let from = ([10, 1, 1, 1], 4_000).into();
        Self { name, keys, obedience: Obedience::default(), from, boot: WALL.0, sequence: 0 }
    }

    fn report(&mut self, millis: u64) -> Vec<u8> {
        self.sequence += 1;
        let nonce = Nonce(u128::from(self.sequence).to_be_bytes());
        self.obedience.sends(nonce, wall(millis));
        let figures = Figures { run_queue: Some(5), ..Figures::default() };
        let report = Report { boot: self.boot, sequence: self.sequence, figures, ..Report::default() };
        let heard = self.obedience.heard();
        seal_report(
            &self.name,
            self.keys.report(),
            &SignedReport { report, sent: wall(millis), nonce, heard, restart: None },
        )
        .unwrap()
    }

    fn obey(&mut self, datagram: &[u8], millis: u64) -> SignedOrder {
        let order = wire::open(datagram).unwrap().order(self.keys.order()).unwrap();
        self.obedience.obey(&order, wall(millis)).unwrap();
        order
    }

    /// Sends a report that is not known yet, and is introduced.
    fn meet(&mut self, reception: &mut Reception, millis: u64) {
        let first = self.report(millis);
        let Err(Refused::Unheard(Some(introduction))) = receive(reception, &first, self.from, millis) else {
            panic!("it is a stranger");
        };
        self.obey(&introduction, millis);
    }
}

fn receive(reception: &mut Reception, datagram: &[u8], from: SocketAddr, millis: u64) -> Result<Received, Refused> {
    reception.receive(datagram, from, at(millis), wall(millis))
}

#[test]
fn an_agent_is_introduced_and_then_believed_once_for_each_report() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let report = agent.report(100);
    let received = receive(&mut reception, &report, agent.from, 101).unwrap();
    assert_eq!((received.slot, received.message.report.figures.run_queue), (ServerSlot(3), Some(5)));
    let again = receive(&mut reception, &report, agent.from, 102);
    assert_eq!(again, Err(Refused::Replayed { wants_renewal: false }));
}

#[test]
fn each_reason_to_refuse_is_told_apart() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let early = agent.report(50);
    let report = agent.report(100);
    let foreign = ([11, 0, 0, 1], 4_000).into();
    assert_eq!(receive(&mut reception, &report, foreign, 100), Err(Refused::Foreign));
    assert_eq!(receive(&mut reception, b"", agent.from, 100), Err(Refused::Malformed));
    assert_eq!(receive(&mut reception, &report[..30], agent.from, 100), Err(Refused::Malformed));
    let mut forged = report.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(receive(&mut reception, &forged, agent.from, 100), Err(Refused::Forged));
    // The key of one server signs nothing for another.
    let mut other = report.clone();
    let at_name = other.windows(5).position(|bytes| bytes == b"app/a").unwrap();
    other[at_name + 4] = b'b';
    assert_eq!(receive(&mut reception, &other, agent.from, 100), Err(Refused::Forged));
    other[at_name + 4] = b'c';
    assert_eq!(receive(&mut reception, &other, agent.from, 100), Err(Refused::Unknown));
    assert_eq!(receive(&mut reception, &report, agent.from, 31_000), Err(Refused::Late));
    assert!(receive(&mut reception, &report, agent.from, 100).is_ok());
    assert_eq!(receive(&mut reception, &early, agent.from, 110), Err(Refused::Replayed { wants_renewal: false }));
}

#[test]
fn what_was_sent_before_a_restart_of_the_balancer_is_worthless() {
    let (mut before, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut before, 0);
    let report = agent.report(100);
    assert!(receive(&mut before, &report, agent.from, 100).is_ok());
    let mut after = reception(2);
    assert!(matches!(receive(&mut after, &report, agent.from, 200), Err(Refused::Unheard(_))));
    // Nor does it say where orders go.
    assert_eq!(after.order(ServerSlot(3), OrderKind::Question, wall(200)), Err(Undeliverable::Unheard));
}

#[test]
fn questions_go_where_the_last_report_that_counted_came_from() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    assert_eq!(reception.order(ServerSlot(3), OrderKind::Question, wall(0)), Err(Undeliverable::Unheard));
    assert_eq!(reception.order(ServerSlot(9), OrderKind::Question, wall(0)), Err(Undeliverable::Unknown));
    agent.meet(&mut reception, 0);
    let report = agent.report(10);
    receive(&mut reception, &report, agent.from, 10).unwrap();
    agent.from = ([10, 2, 2, 2], 5_000).into();
    // A replay from elsewhere moves nothing.
    let elsewhere = ([10, 9, 9, 9], 1).into();
    receive(&mut reception, &report, elsewhere, 11).unwrap_err();
    let report = agent.report(20);
    receive(&mut reception, &report, agent.from, 20).unwrap();
    let question = reception.order(ServerSlot(3), OrderKind::Question, wall(30)).unwrap();
    assert_eq!((agent.obey(&question.datagram, 30).kind, question.to), (OrderKind::Question, agent.from));
    let restart = reception.order(ServerSlot(3), OrderKind::Restart, wall(40)).unwrap();
    let obeyed = agent.obey(&restart.datagram, 40);
    assert_eq!((obeyed.kind, obeyed.number), (OrderKind::Restart, restart.number));
}

#[test]
fn a_flood_of_forgeries_costs_a_bounded_number_of_checks_and_stops_nobody() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let report = agent.report(1);
    receive(&mut reception, &report, agent.from, 1).unwrap();
    let mut forged = agent.report(2);
    *forged.last_mut().unwrap() ^= 1;
    let (mut checked, mut limited) = (0, 0);
    for number in 0..100_000u32 {
        let from = SocketAddr::new(agent.from.ip(), 10_000 + (number % 50_000) as u16);
        match receive(&mut reception, &forged, from, 2 + u64::from(number / 100)) {
            Err(Refused::Forged) => checked += 1,
            Err(Refused::Limited(Admission::Stranger)) => limited += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(checked <= 2 * STRANGER_RATE && checked + limited == 100_000, "{checked} {limited}");
    let report = agent.report(1_100);
    assert!(receive(&mut reception, &report, agent.from, 1_100).is_ok(), "the agent goes on");
}

#[test]
fn an_agent_whose_keys_are_somebody_elses_drowns_nobody() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let mut told = 0;
    for number in 0..5_000 {
        let report = agent.report(100);
        match receive(&mut reception, &report, agent.from, 1_000 + number / 5) {
            Ok(_) => told += 1,
            Err(refused) => assert_eq!(refused, Refused::TooMany),
        }
    }
    assert!(told <= 2 * REPORTS_RATE, "{told}");
}

#[test]
fn introductions_are_few_however_many_ask() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    let report = agent.report(0);
    let mut answers = |millis, ports: u16| {
        let is_answered = |port: &u16| {
            let from = ([10, 3, 3, 3], *port).into();
            matches!(receive(&mut reception, &report, from, millis), Err(Refused::Unheard(Some(_))))
        };
        (0..100).map(|number| number % ports).filter(is_answered).count()
    };
    assert_eq!(answers(0, 1), 2, "the agent it may be, and whoever sends it again");
    assert_eq!(answers(19, 1), 0);
    assert_eq!(answers(20, 1), 1);
    assert_eq!(answers(40, 100), REINTRODUCED_MAX);
    assert_eq!(answers(59, 100), 0);
}

#[test]
fn a_report_that_somebody_sends_again_takes_no_agents_introduction() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    let copy = agent.report(0);
    for millis in 0..500 {
        // From everywhere, and in the agent's own name.
        for from in (1..20).map(|port| ([10, 9, 9, 9], port).into()).chain([agent.from]) {
            receive(&mut reception, &copy, from, millis).unwrap_err();
        }
        if millis % 100 == 50 {
            let report = agent.report(millis);
            let answer = receive(&mut reception, &report, agent.from, millis);
            assert!(matches!(answer, Err(Refused::Unheard(Some(_)))), "{answer:?}");
        }
    }
}

#[test]
fn an_agent_whose_clock_was_set_back_is_introduced_anew() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let report = agent.report(1);
    receive(&mut reception, &report, agent.from, 1).unwrap();
    agent.boot -= 1_000_000_000;
    let report = agent.report(100);
    assert_eq!(receive(&mut reception, &report, agent.from, 100), Err(Refused::Replayed { wants_renewal: false }));
    let report = agent.report(6_000);
    assert_eq!(receive(&mut reception, &report, agent.from, 6_000), Err(Refused::Replayed { wants_renewal: true }));
    reception.renew(&report);
    agent.meet(&mut reception, 6_100);
    let report = agent.report(6_200);
    assert!(receive(&mut reception, &report, agent.from, 6_200).is_ok());
}

#[test]
fn a_report_that_somebody_sends_again_keeps_no_agent_whose_clock_was_set_back_from_being_heard() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let copy = agent.report(1);
    receive(&mut reception, &copy, agent.from, 1).unwrap();
    agent.boot -= 1_000_000_000;
    for millis in (100..6_000).step_by(100) {
        let report = agent.report(millis);
        let is_renewed = receive(&mut reception, &report, agent.from, millis);
        assert_eq!(is_renewed, Err(Refused::Replayed { wants_renewal: millis >= 5_100 }), "{millis}");
        let copied = receive(&mut reception, &copy, ([10, 9, 9, 9], 1).into(), millis);
        assert_eq!(copied, Err(Refused::Replayed { wants_renewal: false }));
    }
}

#[test]
fn servers_that_stay_keep_what_is_known_of_them() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    agent.meet(&mut reception, 0);
    let report = agent.report(1);
    receive(&mut reception, &report, agent.from, 1).unwrap();
    let sources = Sources::new(&[Cidr { address: agent.from.ip(), prefix: 32 }]);
    let long = ServerId { pool: "p".repeat(200).into(), server: "s".repeat(100).into() };
    let servers = [(id("a"), ServerSlot(3)), (long.clone(), ServerSlot(5))];
    assert_eq!(reception.follow(servers.into_iter(), sources), [long]);
    assert!(matches!(receive(&mut reception, &report, agent.from, 2), Err(Refused::Replayed { .. })));
    let mut other = Agent::new("b");
    let report = other.report(3);
    assert_eq!(receive(&mut reception, &report, agent.from, 3), Err(Refused::Unknown));
}

#[test]
fn what_was_sent_before_a_server_was_taken_away_counts_no_second_time_when_it_is_back() {
    let (mut reception, mut agent) = (reception(1), Agent::new("a"));
    let sources = || Sources::new(&[Cidr { address: [10, 0, 0, 0].into(), prefix: 8 }]);
    agent.meet(&mut reception, 0);
    let report = agent.report(100);
    assert!(receive(&mut reception, &report, agent.from, 100).is_ok());
    for slot in [3, 9] {
        reception.follow([(id("b"), ServerSlot(4))].into_iter(), sources());
        assert_eq!(receive(&mut reception, &report, agent.from, 200), Err(Refused::Unknown));
        reception.follow([(id("a"), ServerSlot(slot)), (id("b"), ServerSlot(4))].into_iter(), sources());
        assert!(matches!(receive(&mut reception, &report, agent.from, 300), Err(Refused::Unheard(_))));
    }
    // Its agent goes on after one question.
    agent.meet(&mut reception, 400);
    let report = agent.report(500);
    assert_eq!(receive(&mut reception, &report, agent.from, 500).unwrap().slot, ServerSlot(9));
}
