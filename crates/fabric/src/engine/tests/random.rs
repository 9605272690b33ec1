//! Random operations of three sides, judged by the rules of matching: fi_tagged(3), MPI's, FI_ORDER_SAS; and one-sided
//! ones beside them.

mod memory;

use super::*;
use memory::Stripes;

const SIDES: usize = 3;
/// Of a message's tag the lowest bits are drawn, and the others are its number, which no receive asks for.
const DRAWN_TAGS: u64 = 4;
const NUMBER_SHIFT: u32 = 8;
/// Contexts: an operation's number times this, and its kind.
const STEP: usize = 3;
const ASKED: usize = 0;
const SENT: usize = 1;
const MEMORY: usize = 2;
const SIZES: [usize; 11] = [0, 1, 5, 64, 700, 4_000, 16_000, 16 * 1024, 16 * 1024 + 1, 140_000, 400_000];

struct Random(u64);

impl Random {
    /// Below `end`. (xorshift64*, Vigna 2016)
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

struct Message {
    from: usize,
    to: usize,
    tag: Option<u64>,
    data: Option<u64>,
    bytes: Vec<u8>,
    /// Reports that are still to come.
    unreported: usize,
    taken_by: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Receive,
    Look(Take),
}

/// A receive or a look that found something.
struct Asked {
    at: usize,
    kind: Kind,
    tagged: bool,
    /// The side whose messages it takes; `None`: anybody's.
    source: Option<usize>,
    tag: u64,
    ignore: u64,
    into: Vec<u8>,
    multi: Option<usize>,
    got: Vec<usize>,
    is_over: bool,
    is_cancelled: bool,
}

impl Asked {
    fn fits(&self, message: &Message) -> bool {
        let fits = |tag: u64| (self.tag ^ tag) & !self.ignore == 0;
        self.at == message.to
            && self.tagged == message.tag.is_some()
            && self.source.is_none_or(|source| source == message.from)
            && message.tag.is_none_or(fits)
    }
}

struct Play {
    random: Random,
    sides: Vec<Side>,
    messages: Vec<Message>,
    asked: Vec<Asked>,
    stripes: Stripes,
}

/// What side `at` calls `peer`.
fn number(at: usize, peer: usize) -> u64 {
    match peer {
        _ if peer == at => 0,
        _ if peer < at => peer as u64 + 1,
        _ => peer as u64,
    }
}

fn side_called(at: usize, called: u64) -> usize {
    (0..SIDES).find(|peer| number(at, *peer) == called).expect("there is such a side")
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let sides: Vec<Side> = (0..SIDES)
            .map(|_| {
                let mut settings = settings();
                let limits = &mut settings.limits;
                limits.unexpected_bytes = random.one_of(&[2_000, 100_000, limits.unexpected_bytes]);
                limits.unacknowledged_bytes = random.one_of(&[20_000, limits.unacknowledged_bytes]);
                let mut config = settings.node_config();
                if random.one_in(3) {
                    // What the others send at once does not fit, and is lost.
                    config.socket.recv_buffer_bytes = 8 * 1024;
                }
                let mut side = side_with(settings, config);
                side.engine.sending.at_once = random.one_in(2);
                side
            })
            .collect();
        let addresses: Vec<_> = sides.iter().map(|side| side.addresses.address(0).unwrap()).collect();
        for (at, side) in sides.iter().enumerate() {
            let others = addresses.iter().enumerate().filter(|(peer, _)| *peer != at);
            others.for_each(|(_, address)| _ = side.addresses.insert(*address));
        }
        let stripes = Stripes::new(&sides);
        Self { random, sides, messages: Vec::new(), asked: Vec::new(), stripes }
    }

    fn send(&mut self) {
        let Self { random, sides, messages, .. } = self;
        let (from, to, id) = (random.below(SIDES), random.below(SIDES), messages.len() as u64);
        let tag = (!random.one_in(4)).then(|| random.below(DRAWN_TAGS as usize) as u64 | id << NUMBER_SHIFT);
        let most = if random.one_in(4) { SIZES.len() } else { 7 };
        let len = random.one_of(&SIZES[..most]);
        let mut bytes: Vec<u8> = (0..len).map(|at| (id as usize * 31 + at * 7) as u8).collect();
        let data = if tag.is_none() || random.one_in(3) { Some(id) } else { None };
        // What is copied is sent at once.
        let is_reported = len > 16 * 1024 || !random.one_in(3);
        let flags = ffi::FI_SEND | if tag.is_some() { ffi::FI_TAGGED } else { ffi::FI_MSG };
        let send = Send {
            to: number(from, to),
            tag,
            data,
            payload: if is_reported { Payload::Posted(posted(&mut bytes)) } else { Payload::Copied(&bytes) },
            report: is_reported.then(|| report(STEP * id as usize + SENT, flags)),
            until: if is_reported {
                random.one_of(&[Until::Free, Until::Free, Until::Delivered, Until::Matched])
            } else {
                Until::Free
            },
        };
        match sides[from].engine.send(send) {
            Ok(_) => {
                let unreported = usize::from(is_reported);
                messages.push(Message { from, to, tag, data, bytes, unreported, taken_by: None });
            }
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }

    fn ask(&mut self, at: usize, tagged: bool, is_wild: bool, kind: Kind, multi: bool) {
        let Self { random, sides, asked, .. } = self;
        let source = (!is_wild && random.one_in(2)).then(|| random.below(SIDES));
        let ignored = if is_wild || !tagged { u64::MAX } else { random.one_of(&[0, 0, 1, DRAWN_TAGS - 1]) };
        let (tag, ignore) = (random.below(DRAWN_TAGS as usize) as u64, ignored | (u64::MAX << NUMBER_SHIFT));
        let room = if is_wild { 400_000 } else { random.one_of(&SIZES[3..]) };
        let mut into = vec![0; if kind == Kind::Receive { room } else { 0 }];
        let context = STEP * asked.len() + ASKED;
        let engine = &mut sides[at].engine;
        let source_number = source.map_or(ffi::FI_ADDR_UNSPEC, |source| number(at, source));
        let pattern = engine.pattern(source_number, tag, ignore).unwrap();
        let multi = multi.then_some(room / 2);
        match kind {
            Kind::Look(take) => match engine.look(tagged, &pattern, take, context) {
                Ok(()) => {}
                Err(errno) => return assert_eq!(errno, Errno::NO_MESSAGE),
            },
            Kind::Receive => {
                let receive = Receive { memory: posted(&mut into), context, wanted: true, multi };
                engine.receive(tagged, pattern, receive).unwrap();
            }
        }
        let got = Vec::new();
        let (is_over, is_cancelled) = (false, false);
        asked.push(Asked { at, kind, tagged, source, tag, ignore, into, multi, got, is_over, is_cancelled });
    }

    /// Takes, or drops, what a look has claimed.
    fn follow_claim(&mut self) {
        let claims = self.asked.iter().enumerate().filter(|(_, asked)| {
            asked.kind == Kind::Look(Take::PeekAndClaim) && asked.got.len() == 1 && !asked.is_over
        });
        let Some(claim) = claims.map(|(claim, _)| claim).next() else { return };
        let asked = &mut self.asked[claim];
        let (engine, context) = (&mut self.sides[asked.at].engine, STEP * claim + ASKED);
        asked.is_over = true;
        if self.random.one_in(3) {
            let pattern = engine.pattern(ffi::FI_ADDR_UNSPEC, 0, 0).unwrap();
            engine.look(asked.tagged, &pattern, Take::Discard, context).unwrap();
            return;
        }
        asked.into = vec![0; 400_000];
        let receive = Receive { memory: posted(&mut asked.into), context, wanted: true, multi: None };
        engine.receive_claimed(asked.tagged, receive).unwrap();
    }

    fn cancel(&mut self, index: usize) {
        let asked = &mut self.asked[index];
        if asked.kind == Kind::Receive && !asked.is_over {
            asked.is_cancelled |= self.sides[asked.at].engine.cancel(STEP * index + ASKED);
        }
    }

    fn step(&mut self) {
        let at = self.random.below(SIDES);
        let (tagged, multi) = (!self.random.one_in(4), self.random.one_in(8));
        match self.random.below(22) {
            20.. => self.stripes.begin(&mut self.random, &mut self.sides, at),
            0..8 => self.send(),
            8..13 => self.ask(at, tagged, false, Kind::Receive, multi),
            13 => {
                let takes = [Take::Peek, Take::PeekAndClaim, Take::PeekAndDiscard];
                let take = self.random.one_of(&takes);
                self.ask(at, tagged, false, Kind::Look(take), false);
            }
            14 => self.follow_claim(),
            15 if !self.asked.is_empty() => {
                let index = self.random.below(self.asked.len());
                self.cancel(index);
            }
            _ => self.work(at),
        }
    }

    fn work(&mut self, at: usize) {
        self.sides[at].engine.send_deferred();
        self.sides[at].engine.progress();
        for entry in read(&self.sides[at]) {
            match entry.context % STEP {
                SENT => {
                    let message = &mut self.messages[entry.context / STEP];
                    assert_eq!((at, &entry.error), (message.from, &None), "{entry:?}");
                    message.unreported = message.unreported.checked_sub(1).expect("reported once");
                }
                MEMORY => self.stripes.note(at, &entry),
                _ => self.note(at, entry),
            }
        }
    }

    fn note(&mut self, at: usize, entry: Completion) {
        let index = entry.context / STEP;
        let asked = &mut self.asked[index];
        assert_eq!(asked.at, at);
        if entry.error == Some((Errno::CANCELED, 0)) {
            assert!(asked.is_cancelled, "{entry:?}");
            asked.is_over |= asked.multi.is_none() || entry.flags & ffi::FI_MULTI_RECV != 0;
            return;
        }
        let id = if asked.tagged { entry.tag >> NUMBER_SHIFT } else { entry.data } as usize;
        let message = &mut self.messages[id];
        assert!(asked.fits(message), "{entry:?}");
        assert_eq!(side_called(at, entry.source), message.from);
        let carries = entry.flags & ffi::FI_REMOTE_CQ_DATA != 0;
        assert_eq!(carries.then_some(entry.data), message.data);
        let is_claimed = asked.got.last() == Some(&id);
        match asked.kind {
            Kind::Look(Take::PeekAndClaim) if is_claimed && asked.into.is_empty() => {
                return assert_eq!(entry.len, 0, "discarded");
            }
            Kind::Look(_) if !is_claimed => {
                assert_eq!((entry.len, &entry.error), (message.bytes.len(), &None));
                asked.is_over |= asked.kind != Kind::Look(Take::PeekAndClaim);
            }
            _ => {
                let begin =
                    if asked.multi.is_some() { entry.buffer - asked.into.as_ptr() as usize } else { 0 };
                assert_eq!(asked.into[begin..][..entry.len], message.bytes[..entry.len], "message {id}");
                let over = message.bytes.len() - entry.len;
                assert_eq!(entry.error, (over > 0).then_some((Errno::TRUNCATED, over)));
                asked.is_over |= asked.multi.is_none() || entry.flags & ffi::FI_MULTI_RECV != 0;
            }
        }
        if !is_claimed {
            asked.got.push(id);
            if asked.kind != Kind::Look(Take::Peek) {
                assert_eq!(message.taken_by.replace(index), None, "taken twice");
            }
        }
    }

    /// Receives whatever is left, and has all receives end.
    fn finish(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.messages.iter().any(|message| message.taken_by.is_none() || message.unreported > 0)
            || self.asked.iter().any(|asked| asked.kind != Kind::Receive && !asked.is_over)
            || self.stripes.is_busy()
        {
            assert!(Instant::now() < end, "messages are left after 20 s: {:?}", self.left());
            (0..SIDES).for_each(|at| self.work(at));
            self.follow_claim();
            for (at, tagged) in (0..SIDES).flat_map(|at| [(at, true), (at, false)]) {
                let lacks = |message: &Message| {
                    message.taken_by.is_none() && message.to == at && message.tag.is_some() == tagged
                };
                let is_wild = |asked: &Asked| {
                    asked.at == at && asked.tagged == tagged && asked.ignore == u64::MAX && !asked.is_over
                };
                let waits = self.asked.iter().any(|asked| is_wild(asked) && asked.source.is_none());
                if !waits && self.messages.iter().any(lacks) {
                    self.ask(at, tagged, true, Kind::Receive, false);
                }
            }
        }
        (0..self.asked.len()).for_each(|index| self.cancel(index));
        (0..SIDES).for_each(|at| self.work(at));
        assert!(self.asked.iter().all(|asked| asked.is_over), "every receive ends");
    }

    fn left(&self) -> Vec<String> {
        let left = |it: &Message| it.taken_by.is_none() || it.unreported > 0;
        let left = self.messages.iter().enumerate().filter(|(_, it)| left(it));
        left.map(|(id, Message { from, to, bytes, taken_by, .. })| {
            format!("{id} of {} bytes, {from} to {to}, taken by {taken_by:?}", bytes.len())
        })
        .collect()
    }

    /// Messages do not overtake each other, nor do receives.
    fn judge(&self) {
        let before = |a: usize, b: usize| a < b && self.messages[a].from == self.messages[b].from;
        for (later, asked) in self.asked.iter().enumerate() {
            for &got in &asked.got {
                for earlier in (0..got).filter(|earlier| before(*earlier, got)) {
                    let taken_by = self.messages[earlier].taken_by;
                    let fits = asked.fits(&self.messages[earlier]);
                    let by_itself = taken_by == Some(later) && asked.kind == Kind::Receive;
                    assert!(
                        !fits || by_itself || taken_by.is_some_and(|by| by < later),
                        "{later} got {got}, and {earlier} went to {taken_by:?}"
                    );
                }
                for (first, other) in self.asked[..later].iter().enumerate() {
                    let waits = other.kind == Kind::Receive && !other.is_cancelled;
                    if waits && other.fits(&self.messages[got]) {
                        let last = *other.got.last().expect("it is over");
                        let is_earlier =
                            before(last, got) || self.messages[last].from != self.messages[got].from;
                        assert!(is_earlier, "{later} got {got}, for which {first} waited, which got {last}");
                    }
                }
            }
        }
    }
}

/// `DENREI_FABRIC_SEEDS=FROM..TO` plays others.
#[test]
fn random_operations_follow_the_rules_of_matching_and_of_memory() {
    let seeds = std::env::var("DENREI_FABRIC_SEEDS").unwrap_or("0..40".into());
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
        println!("seed {seed}");
        let mut play = Play::new(seed);
        for _ in 0..400 {
            play.step();
        }
        play.finish();
        play.judge();
        play.stripes.judge();
    }
}
