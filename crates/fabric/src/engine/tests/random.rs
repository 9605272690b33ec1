//! Random operations of three sides, judged by the rules of matching: fi_tagged(3), MPI's, FI_ORDER_SAS; and one-sided
//! ones beside them.

mod memory;

use super::*;
use memory::Stripes;

const SIDES: usize = 3;
/// Of a message's tag the lowest bits are drawn, and the others are its number, which no receive asks for.
const DRAWN_TAGS: u64 = 4;
const NUMBER_SHIFT: u32 = 8;
/// Of contexts: numbers of operations are so far apart, and beside them there is its kind.
const STEP: usize = 3;
const ASKED: usize = 0;
const SENT: usize = 1;
const MEMORY: usize = 2;

/// What an operation is reported under.
fn context(number: usize, kind: usize) -> usize {
    STEP * (number + 1) + kind
}

/// Which it was.
fn number_of(context: usize) -> usize {
    context / STEP - 1
}

/// Of messages: sent at once, with the limits as they are set; only as the first of a row; and offered.
const SIZES: [usize; 11] = [0, 1, 5, 64, 700, 4_000, 16_000, 16 * 1024, 16 * 1024 + 1, 140_000, 400_000];
/// Three of four messages have one of the first so many.
const SMALL_SIZES: usize = 7;

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

impl Message {
    /// Whether somebody still has to take it, or its sender to hear of it.
    fn is_left(&self, lost: Option<usize>) -> bool {
        let is_between = ![self.from, self.to].map(Some).contains(&lost);
        (is_between && self.taken_by.is_none()) || (Some(self.from) != lost && self.unreported > 0)
    }
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
    /// Cancelled, or failed with the side that is lost.
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

    /// A buffer for several messages is told to be over, another is with the first report.
    fn note_end(&mut self, entry: &Completion) {
        self.is_over |= self.multi.is_none() || entry.flags & ffi::FI_MULTI_RECV != 0;
    }
}

struct Play {
    random: Random,
    sides: Vec<Side>,
    messages: Vec<Message>,
    asked: Vec<Asked>,
    stripes: Stripes,
    /// A side that does nothing any more.
    lost: Option<usize>,
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
    fn new(seed: u64, failure_timeout: Option<Duration>) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let sides: Vec<Side> = (0..SIDES)
            .map(|_| {
                let mut settings = settings();
                settings.failure_timeout = failure_timeout.unwrap_or(settings.failure_timeout);
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
        Self { random, sides, messages: Vec::new(), asked: Vec::new(), stripes, lost: None }
    }

    /// Some side that works.
    fn any(&mut self) -> usize {
        let at = self.random.below(SIDES);
        if Some(at) == self.lost { (at + 1) % SIDES } else { at }
    }

    /// Sends a message of some side's, if there is room.
    fn send(&mut self) {
        let from = self.any();
        let Self { random, sides, messages, lost, .. } = self;
        let (to, id) = (random.below(SIDES), messages.len() as u64);
        let tag = (!random.one_in(4)).then(|| random.below(DRAWN_TAGS as usize) as u64 | id << NUMBER_SHIFT);
        let most = if random.one_in(4) { SIZES.len() } else { SMALL_SIZES };
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
            report: is_reported.then(|| report(context(id as usize, SENT), flags)),
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
            Err(errno) => assert!(errno == Errno::AGAIN || Some(to) == *lost, "{errno:?}"),
        }
    }

    /// Posts a receive of side `at`, or looks; `is_wild`: for whatever there may be.
    fn ask(&mut self, at: usize, tagged: bool, is_wild: bool, kind: Kind, multi: bool) {
        let Self { random, sides, asked, lost, .. } = self;
        let source = (!is_wild && random.one_in(2)).then(|| random.below(SIDES));
        let ignored = if is_wild || !tagged { u64::MAX } else { random.one_of(&[0, 0, 1, DRAWN_TAGS - 1]) };
        let (tag, ignore) = (random.below(DRAWN_TAGS as usize) as u64, ignored | (u64::MAX << NUMBER_SHIFT));
        let room = if is_wild { 400_000 } else { random.one_of(&SIZES[3..]) };
        let mut into = vec![0; if kind == Kind::Receive { room } else { 0 }];
        let context = context(asked.len(), ASKED);
        let engine = &mut sides[at].engine;
        let source_number = source.map_or(ffi::FI_ADDR_UNSPEC, |source| number(at, source));
        let pattern = engine.pattern(source_number, tag, ignore).unwrap();
        let multi = multi.then_some(room / 2);
        match kind {
            Kind::Look(take) => match engine.look(tagged, &pattern, take, context) {
                Ok(()) => {}
                Err(errno) => return assert!(errno == Errno::NO_MESSAGE || lost.is_some(), "{errno:?}"),
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
        let (engine, context) = (&mut self.sides[asked.at].engine, context(claim, ASKED));
        asked.is_over = true;
        // A large message is lost with its sender.
        let is_lost = Some(self.messages[asked.got[0]].from) == self.lost;
        if self.random.one_in(3) {
            let pattern = engine.pattern(ffi::FI_ADDR_UNSPEC, 0, 0).unwrap();
            let discarded = engine.look(asked.tagged, &pattern, Take::Discard, context);
            return assert!(discarded.is_ok() || is_lost);
        }
        asked.into = vec![0; 400_000];
        let receive = Receive { memory: posted(&mut asked.into), context, wanted: true, multi: None };
        let received = engine.receive_claimed(asked.tagged, receive);
        assert!(received.is_ok() || is_lost);
    }

    fn cancel(&mut self, index: usize) {
        let asked = &mut self.asked[index];
        if asked.kind == Kind::Receive && !asked.is_over && Some(asked.at) != self.lost {
            asked.is_cancelled |= self.sides[asked.at].engine.cancel(context(index, ASKED));
        }
    }

    /// Does one thing, drawn.
    fn step(&mut self) {
        let at = self.any();
        let (tagged, multi) = (!self.random.one_in(4), self.random.one_in(8));
        match self.random.below(22) {
            20.. => self.stripes.begin(&mut self.random, &mut self.sides, at, self.lost),
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

    fn work_all(&mut self) {
        for at in 0..SIDES {
            if Some(at) != self.lost {
                self.work(at);
            }
        }
    }

    /// Lets a side work, and checks all that is reported to it.
    fn work(&mut self, at: usize) {
        self.sides[at].engine.send_deferred();
        self.sides[at].engine.progress();
        for entry in read(&self.sides[at]) {
            match entry.context % STEP {
                // What was reported as sent is lost.
                _ if entry.context == 0 => assert!(entry.error.is_some() && self.lost.is_some(), "{entry:?}"),
                SENT => {
                    let message = &mut self.messages[number_of(entry.context)];
                    let may_fail = Some(message.to) == self.lost;
                    let (from, to, len) = (message.from, message.to, message.bytes.len());
                    let what = format!("{len} bytes, {from} to {to}, lost {:?}: {entry:?}", self.lost);
                    assert!(at == from && (entry.error.is_none() || may_fail), "{what}");
                    message.unreported = message.unreported.checked_sub(1).expect("reported once");
                }
                MEMORY => self.stripes.note(at, &entry, self.lost),
                _ => self.note(at, entry),
            }
        }
    }

    /// A receive or a look of side `at` was reported.
    fn note(&mut self, at: usize, entry: Completion) {
        let index = number_of(entry.context);
        let asked = &mut self.asked[index];
        assert_eq!(asked.at, at);
        if entry.error.is_some() && entry.source == ffi::FI_ADDR_UNSPEC {
            let is_cancelled = entry.error == Some((Errno::CANCELED, 0));
            assert!(if is_cancelled { asked.is_cancelled } else { self.lost.is_some() }, "{entry:?}");
            asked.is_cancelled = true;
            return asked.note_end(&entry);
        }
        let id = if asked.tagged { entry.tag >> NUMBER_SHIFT } else { entry.data } as usize;
        let message = &mut self.messages[id];
        assert!(asked.fits(message), "{entry:?}");
        assert_eq!(side_called(at, entry.source), message.from);
        let carries = entry.flags & ffi::FI_REMOTE_CQ_DATA != 0;
        assert_eq!(carries.then_some(entry.data), message.data);
        let is_claimed = asked.got.last() == Some(&id);
        let is_cut = entry.error.is_some_and(|(errno, _)| errno != Errno::TRUNCATED);
        match asked.kind {
            // Its sender is lost before all of it was here.
            _ if is_cut => {
                assert_eq!(Some(message.from), self.lost, "{entry:?}");
                asked.note_end(&entry);
            }
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
                asked.note_end(&entry);
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
        let (end, lost) = (Instant::now() + Duration::from_secs(20), self.lost);
        let is_left = |message: &Message| message.is_left(lost);
        let is_there = |side: usize| Some(side) != lost;
        let is_claim = |asked: &Asked| asked.kind != Kind::Receive && !asked.is_over && is_there(asked.at);
        while self.messages.iter().any(is_left)
            || self.asked.iter().any(is_claim)
            || self.stripes.is_busy(lost)
        {
            assert!(Instant::now() < end, "messages are left after 20 s: {:?}", self.left());
            self.work_all();
            self.follow_claim();
            for (at, tagged) in (0..SIDES).flat_map(|at| [(at, true), (at, false)]) {
                let lacks = |message: &Message| {
                    is_left(message) && message.to == at && message.tag.is_some() == tagged
                };
                let is_wild = |asked: &Asked| {
                    asked.at == at && asked.tagged == tagged && asked.ignore == u64::MAX && !asked.is_over
                };
                let waits = self.asked.iter().any(|asked| is_wild(asked) && asked.source.is_none());
                if !waits && is_there(at) && self.messages.iter().any(lacks) {
                    self.ask(at, tagged, true, Kind::Receive, false);
                }
            }
        }
        (0..self.asked.len()).for_each(|index| self.cancel(index));
        self.work_all();
        assert!(self.asked.iter().all(|asked| asked.is_over || !is_there(asked.at)), "every receive ends");
    }

    fn left(&self) -> Vec<String> {
        let left = self.messages.iter().enumerate().filter(|(_, it)| it.is_left(self.lost));
        left.map(|(id, Message { from, to, bytes, taken_by, .. })| {
            format!("{id} of {} bytes, {from} to {to}, taken by {taken_by:?}", bytes.len())
        })
        .collect()
    }

    /// Messages do not overtake each other, nor do receives.
    fn judge(&self) {
        let before = |a: usize, b: usize| a < b && self.messages[a].from == self.messages[b].from;
        let is_lost = |message: usize| Some(self.messages[message].from) == self.lost;
        let all = self.asked.iter().enumerate();
        for (later, asked) in all.filter(|(_, asked)| Some(asked.at) != self.lost) {
            for &got in &asked.got {
                for earlier in (0..got).filter(|earlier| before(*earlier, got) && !is_lost(got)) {
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

/// The first few, or those of `DENREI_FABRIC_SEEDS=FROM..TO`; says which.
fn seeds(few: u64) -> impl Iterator<Item = u64> {
    let asked = std::env::var("DENREI_FABRIC_SEEDS").ok();
    let (from, to) = asked.map_or((0, few), |seeds| {
        let (from, to) = seeds.split_once("..").expect("FROM..TO");
        (from.parse().expect("a number"), to.parse().expect("a number"))
    });
    (from..to).inspect(|seed| println!("seed {seed}"))
}

#[test]
fn random_operations_follow_the_rules_of_matching_and_of_memory() {
    for seed in seeds(40) {
        let mut play = Play::new(seed, None);
        for _ in 0..400 {
            play.step();
        }
        play.finish();
        play.judge();
        play.stripes.judge(None);
    }
}

/// It hangs, and is missed while the others go on.
#[test]
fn random_operations_end_though_a_side_is_lost() {
    if !a_peer_can_hang() {
        return;
    }
    for seed in seeds(4) {
        let mut play = Play::new(seed, Some(Duration::from_secs(1)));
        (0..200).for_each(|_| play.step());
        play.lost = Some(play.random.below(SIDES));
        for _ in 0..200 {
            play.step();
            // The others do not miss each other.
            play.work_all();
            std::thread::sleep(Duration::from_millis(2));
        }
        play.finish();
        play.judge();
        play.stripes.judge(play.lost);
    }
}
