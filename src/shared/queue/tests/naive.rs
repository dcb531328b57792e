//! A queue that looks at everybody each time, and random histories in which the real one must do the same.

use super::*;

const SERVERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request comes, which may belong to a server and may have tried some.
    Comes { own: Option<usize>, tried: u8 },
    /// The holder at this position gives its place back.
    GivesBack(usize),
    /// The waiter at this position goes away.
    Leaves(usize),
    /// The time of the waiter at this position is up.
    TimeUp(usize),
    /// The server gets another state: what new requests and its own clients may do.
    Changes(usize, bool, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let comes = (proptest::option::weighted(0.3, 0..SERVERS), prop_oneof![4 => Just(0u8), 1 => 0u8..8]);
    prop_oneof![
        5 => comes.prop_map(|(own, tried)| Step::Comes { own, tried }),
        4 => (0usize..64).prop_map(Step::GivesBack),
        1 => (0usize..64).prop_map(Step::Leaves),
        1 => (0usize..64).prop_map(Step::TimeUp),
        1 => (0..SERVERS, any::<bool>(), any::<bool>()).prop_map(|(server, new, back)| Step::Changes(server, new, new || back)),
    ]
}

#[derive(Clone, Debug)]
struct Someone {
    name: u32,
    own: Option<usize>,
    tried: u8,
}

/// The naive queue: a list in order of arrival.
#[derive(Debug)]
struct Naive {
    max: [u32; SERVERS],
    active: [u32; SERVERS],
    new: [bool; SERVERS],
    back: [bool; SERVERS],
    line: Vec<Someone>,
    granted: Vec<(u32, usize)>,
}

impl Naive {
    fn may_use(&self, one: &Someone, server: usize) -> bool {
        let has_tried = |server: usize| one.tried & (1 << server) != 0;
        match one.own {
            Some(own) => own == server && self.back[server],
            None => {
                let is_everywhere = (0..SERVERS).filter(|server| self.new[*server]).all(has_tried);
                self.new[server] && (!has_tried(server) || is_everywhere)
            }
        }
    }

    /// Gives every free place to the oldest that can use it, one of the least loaded server first.
    fn settle(&mut self) {
        let oldest = |naive: &Self, server| naive.line.iter().position(|one| naive.may_use(one, server));
        let is_open = |naive: &Self, server: usize| naive.active[server] < naive.max[server];
        while let Some((server, at)) = (0..SERVERS)
            .filter(|server| is_open(self, *server))
            .filter_map(|server| Some((server, oldest(self, server)?)))
            .min_by_key(|(server, _)| self.active[*server])
        {
            self.active[server] += 1;
            let one = self.line.remove(at);
            self.granted.push((one.name, server));
        }
    }

    fn comes(&mut self, one: Someone) {
        self.line.push(one);
        self.settle();
    }
}

/// The real one, with everybody who waits or holds a place.
struct Real {
    queue: Arc<Queue>,
    endpoints: Vec<Arc<Endpoint>>,
    waiting: Vec<(Someone, Waiting)>,
    holders: Vec<(u32, usize)>,
    granted: Vec<(u32, usize)>,
}

impl Real {
    fn take(&mut self, name: u32, server: usize) {
        self.granted.push((name, server));
        self.holders.push((name, server));
    }

    fn comes(&mut self, one: Someone, naive: &Naive) {
        let mut tried = Tried::NONE;
        (0..SERVERS).filter(|server| one.tried & (1 << server) != 0).for_each(|server| tried.add(slot(server)));
        let choose = || {
            let mut servers: Vec<usize> = (0..SERVERS).filter(|server| naive.may_use(&one, *server)).collect();
            servers.sort_by_key(|server| naive.active[*server]);
            servers.into_iter().find(|server| reserve(&self.endpoints[*server]))
        };
        match self.queue.join(one.own.map(slot), &tried, 1000, choose) {
            Joined::Place(server) => self.take(one.name, server),
            Joined::Waits(waiting) => self.waiting.push((one, waiting)),
            other => panic!("{other:?}"),
        }
    }

    /// Asks everybody who waits.
    fn collect(&mut self) {
        for (one, mut waiting) in std::mem::take(&mut self.waiting) {
            match place_of(&mut waiting) {
                Some(server) => self.take(one.name, server as usize),
                None => self.waiting.push((one, waiting)),
            }
        }
    }
}

fn slot(server: usize) -> ServerSlot {
    ServerSlot(u32::try_from(server).unwrap())
}

fn seats(endpoints: &[Arc<Endpoint>], naive: &Naive) -> Vec<Seat> {
    let seat = |(server, endpoint): (usize, &Arc<Endpoint>)| Seat {
        endpoint: Arc::clone(endpoint),
        share: Share::of(endpoint.server.weight),
        takes_new: naive.new[server],
        takes_back: naive.back[server],
    };
    endpoints.iter().enumerate().map(seat).collect()
}

fn play(steps: &[Step], max: [u32; SERVERS]) -> Result<(), TestCaseError> {
    let endpoints: Vec<_> = (0u32..).zip(max).map(|(number, max)| endpoint(number, Some(max))).collect();
    let (everybody, nobody) = ([true; SERVERS], [0; SERVERS]);
    let mut naive =
        Naive { max, active: nobody, new: everybody, back: everybody, line: Vec::new(), granted: Vec::new() };
    let queue = queue_of(&endpoints);
    let mut real = Real { queue, endpoints, waiting: Vec::new(), holders: Vec::new(), granted: Vec::new() };
    for (name, step) in (0u32..).zip(steps) {
        match *step {
            Step::Comes { own, tried } => {
                // A server that may not have its own client back is not its own any more.
                let own = own.filter(|server| naive.back[*server]);
                let one = Someone { name, own, tried: if own.is_some() { 0 } else { tried } };
                real.comes(one.clone(), &naive);
                naive.comes(one);
            }
            Step::GivesBack(at) if !real.holders.is_empty() => {
                let (_, server) = real.holders.swap_remove(at % real.holders.len());
                real.queue.give_back(&real.endpoints[server]);
                naive.active[server] -= 1;
                naive.settle();
            }
            Step::Leaves(at) | Step::TimeUp(at) if !real.waiting.is_empty() => {
                let (one, waiting) = real.waiting.remove(at % real.waiting.len());
                naive.line.retain(|other| other.name != one.name);
                match step {
                    Step::Leaves(_) => drop(waiting),
                    _ => prop_assert!(waiting.expire(|| None::<()>).is_none()),
                }
            }
            Step::Changes(server, new, back) => {
                (naive.new[server], naive.back[server]) = (new, back);
                naive.line.iter_mut().filter(|one| one.own == Some(server) && !back).for_each(|one| one.own = None);
                real.queue.follow(seats(&real.endpoints, &naive).into_iter());
                naive.settle();
            }
            Step::GivesBack(_) | Step::Leaves(_) | Step::TimeUp(_) => {}
        }
        real.collect();
        naive.granted.sort_unstable();
        real.granted.sort_unstable();
        prop_assert_eq!(&real.granted, &naive.granted, "after {:?}", step);
        let now: Vec<u32> = real.endpoints.iter().map(|endpoint| active(endpoint)).collect();
        prop_assert_eq!(now, naive.active.to_vec());
        prop_assert_eq!(real.queue.figures().waiting as usize, naive.line.len());
    }
    for (_, server) in std::mem::take(&mut real.holders) {
        real.queue.give_back(&real.endpoints[server]);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn places_pass_to_the_oldest_that_can_use_them_as_in_a_naive_queue(
        steps in proptest::collection::vec(step(), 1..120),
        max in [1u32..4, 1u32..3, 1u32..2],
    ) {
        play(&steps, max)?;
    }
}
