//! Groups for collective operations of MPI: what `libdenrei-mpi.so` uses, beside the provider.
//!
//! Inputs → outputs: a process's Node, a group's address and the members' → a [`Seat`] in the group,
//! from which the opener sends to all others (M1, M9). The Node is one of its own, whatever carries the
//! MPI's messages. The thread that waits in a collective operation drives it, so that an operation takes
//! no change of threads and nobody is awake beside the ranks; while none does, the keeper: members
//! acknowledge, and openers repeat, while they compute.

mod told;

use crate::error::Errno;
use crate::log::{self, Level, Subsystem};
use crate::settings::Settings;
use bytes::Bytes;
use denrei::{
    ChannelId, Config, Group, GroupError, GroupId, GroupListener, GroupOptions, Incoming, Maker, MemberPath,
    Membership, Node, OpenGroupError, PeerId, Phase, SendError,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use told::Told;

/// How often the keeper looks whether the application has gone away: what it did not wait for is late by two
/// of these at most, and eight ranks on a core spend a fiftieth of it on looking.
const KEEPER_TURN: Duration = Duration::from_millis(2);
/// How long the keeper sleeps on the sockets, if nothing comes: an operation that begins meanwhile gets what
/// comes from its hands, until then.
const KEEPER_SLEEP: Duration = Duration::from_millis(20);

/// What the seats of a process and its keeper share.
#[derive(Debug, Default)]
struct Keeper {
    /// A seat was used since the keeper last looked.
    attended: AtomicBool,
    stopping: AtomicBool,
}

/// A process's Node for groups, and its keeper.
#[derive(Debug)]
pub struct Carrier {
    node: Node,
    told: Arc<Told>,
    keeper: Arc<Keeper>,
    thread: Option<JoinHandle<()>>,
    maker: Maker,
}

impl Carrier {
    /// Opens a process's Node, with the provider's settings.
    ///
    /// # Errors
    /// As for an endpoint: no address, or a key that cannot be read; and the system gives no thread.
    pub fn open(settings: &Settings) -> Result<Self, Errno> {
        let config = Config { cluster_key: settings.cluster_key()?, ..settings.common_config() };
        let node = Node::bind(settings.first_address(), config).map_err(|error| Errno::of_bind(&error))?;
        let keeper = Arc::<Keeper>::default();
        let (theirs, driven) = (Arc::clone(&keeper), node.clone());
        let builder = std::thread::Builder::new().name("denrei-groups".into());
        let thread = builder.spawn(move || keep(&theirs, &driven)).map_err(|_| Errno::OTHER)?;
        Ok(Self { node, told: Arc::default(), keeper, thread: Some(thread), maker: Maker::this_process() })
    }

    /// Where the Node is.
    pub fn local_address(&self) -> SocketAddr {
        self.node.local_addr()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // In a forked child there is no keeper.
        if !self.maker.is_this_process() {
            return;
        }
        self.keeper.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing that could panic.
            let _ = thread.join();
        }
    }
}

/// The keeper's life.
fn keep(keeper: &Keeper, node: &Node) {
    while !keeper.stopping.load(Ordering::Acquire) {
        if keeper.attended.swap(false, Ordering::Relaxed) {
            std::thread::park_timeout(KEEPER_TURN);
        } else {
            // Nobody else takes the events of the sessions beneath the groups.
            node.event_timeout(KEEPER_SLEEP);
        }
    }
}

/// A place in a group.
#[derive(Debug)]
pub struct Seat {
    role: Role,
    node: Node,
    told: Arc<Told>,
    keeper: Arc<Keeper>,
}

#[derive(Debug)]
enum Role {
    /// The opener's, and who the members are.
    Leads(Group, Vec<PeerId>),
    /// Of one that waits to be made a member.
    Listens(GroupListener),
    /// A member's, and who the opener is.
    Follows(
        Membership,
        PeerId,
        #[allow(dead_code, reason = "hears the address as long as it lives")] GroupListener,
    ),
    /// It was lost while the group was opened.
    Empty,
}

impl Seat {
    /// Opens a group at `group` with `members`, who have to listen there within `timeout`.
    ///
    /// # Errors
    /// Not all of them did.
    pub fn lead(
        carrier: &Carrier,
        group: SocketAddr,
        members: &[SocketAddr],
        timeout: Duration,
    ) -> Result<Self, Errno> {
        let options = GroupOptions { open_timeout: timeout, ..GroupOptions::default() };
        let group = carrier.node.open_group(group, members, options).map_err(|error| refused(&error))?;
        let peers: Option<Vec<PeerId>> = members.iter().map(|member| carrier.node.peer_at(*member)).collect();
        let peers = peers.ok_or(Errno::RESET)?;
        carrier.told.begin(group.id(), &peers);
        Ok(Self::of(carrier, Role::Leads(group, peers)))
    }

    /// Of each member, in the order in which they were named, whether it hears the group's address: what comes by unicast
    /// the MPI itself does better. Nobody, if this is no seat to lead.
    pub fn hearers(&self) -> Vec<bool> {
        let Role::Leads(group, _) = &self.role else { return Vec::new() };
        let members = group.status().map(|status| status.members).unwrap_or_default();
        members.iter().map(|member| member.path == MemberPath::Multicast).collect()
    }

    /// Waits to be made a member of a group at `group`.
    ///
    /// # Errors
    /// Not an address that a group can have. `ENOSPC`: it cannot be heard, because this process hears as many as it
    /// can or the host has no multicast.
    pub fn listen(carrier: &Carrier, group: SocketAddr) -> Result<Self, Errno> {
        let listener = carrier.node.join_group(group).map_err(|error| refused(&error))?;
        if !listener.is_heard() {
            log::say(Level::Info, Subsystem::EndpointControl, || format!("{group} cannot be heard here"));
            return Err(Errno(crate::ffi::ENOSPC));
        }
        Ok(Self::of(carrier, Role::Listens(listener)))
    }

    fn of(carrier: &Carrier, role: Role) -> Self {
        let (told, keeper) = (Arc::clone(&carrier.told), Arc::clone(&carrier.keeper));
        Self { role, node: carrier.node.clone(), told, keeper }
    }

    /// The application is here, and drives the Node while it waits.
    fn attend(&self) -> &Role {
        self.keeper.attended.store(true, Ordering::Relaxed);
        &self.role
    }

    /// Waits for `opener` to make this process a member. Groups of others at the address are left.
    ///
    /// # Errors
    /// `ETIMEDOUT`: it did not. `EINVAL`: nobody listens here.
    pub fn accept(&mut self, opener: SocketAddr, timeout: Duration) -> Result<(), Errno> {
        self.attend();
        let Role::Listens(listener) = std::mem::replace(&mut self.role, Role::Empty) else {
            return Err(Errno::INVALID);
        };
        let end = Instant::now() + timeout;
        while let Some(membership) = listener.accept(end.saturating_duration_since(Instant::now())) {
            if membership.opener() == opener {
                let peer = self.node.peer_at(opener).ok_or(Errno::RESET)?;
                self.role = Role::Follows(membership, peer, listener);
                return Ok(());
            }
        }
        Err(Errno(crate::ffi::ETIMEDOUT))
    }

    /// Tells the opener that this member has come to the operation with this number.
    ///
    /// # Errors
    /// `AGAIN`: there was no room for it for so long. `ECONNRESET`: the opener is lost. `EINVAL`: not a member's seat.
    pub fn tell(&self, turn: u32, timeout: Duration) -> Result<(), Errno> {
        let Role::Follows(membership, peer, _) = self.attend() else { return Err(Errno::INVALID) };
        let to = ChannelId { peer: *peer, channel: told::CHANNEL };
        match self.node.send_timeout(to, told::message(membership.id(), turn), timeout) {
            Ok(_) => Ok(()),
            Err(SendError::WouldBlock { .. }) => Err(Errno::AGAIN),
            Err(_) => Err(Errno::RESET),
        }
    }

    /// Waits until all members have come to the operation with this number.
    ///
    /// # Errors
    /// `AGAIN`: not all did for so long. `ECONNRESET`: one of them is lost. `EINVAL`: not this seat's to lead.
    pub fn await_told(&self, turn: u32, timeout: Duration) -> Result<(), Errno> {
        let Role::Leads(group, members) = self.attend() else { return Err(Errno::INVALID) };
        let missing = || self.told.missing(group.id(), members, turn);
        let end = Instant::now() + timeout;
        loop {
            self.take_told(group.id());
            let Some(member) = missing() else { return Ok(()) };
            let left = end.saturating_duration_since(Instant::now());
            if self.node.wait_incoming_unless(left, || missing().is_none()) || missing().is_none() {
                continue;
            }
            let has_failed = self.node.next_event(Duration::ZERO).is_err();
            let is_over = self.node.flow(member).is_none_or(|flow| flow.phase == Phase::Over);
            return Err(if has_failed || is_over { Errno::RESET } else { Errno::AGAIN });
        }
    }

    /// Takes what members have told, and wakes those who wait for another group than this one if some of it is for them.
    fn take_told(&self, own: GroupId) {
        let mut is_others = false;
        let take = |incoming| {
            if let Incoming::Message(message) = incoming {
                let group = self.told.take(message.channel.peer, &message.data);
                is_others |= group.is_some_and(|group| group != own);
            }
        };
        self.node.drain(usize::MAX, |_| true, take);
        if is_others {
            self.node.rally();
        }
    }

    /// Sends to all others, as one message.
    ///
    /// # Errors
    /// `AGAIN`: the queue was full for so long. Others: the group is over, or not this seat's to lead.
    pub fn send(&self, parts: &[&[u8]], timeout: Duration) -> Result<(), Errno> {
        let Role::Leads(group, _) = self.attend() else { return Err(Errno::INVALID) };
        match group.send_timeout(Bytes::from(parts.concat()), timeout) {
            Ok(_) => Ok(()),
            Err(GroupError::WouldBlock { .. }) => Err(Errno::AGAIN),
            Err(_) => Err(Errno::RESET),
        }
    }

    /// Waits until all have what was sent.
    ///
    /// # Errors
    /// `AGAIN`: not all did for so long. `ECONNRESET`: none is left. `EINVAL`: not this seat's to lead.
    pub fn flush(&self, timeout: Duration) -> Result<(), Errno> {
        let Role::Leads(group, _) = self.attend() else { return Err(Errno::INVALID) };
        match group.wait_acknowledged(timeout) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::AGAIN),
            Err(_) => Err(Errno::RESET),
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// `AGAIN`: none came for so long. Others: the group is over, or not one that this seat hears.
    pub fn receive(&self, timeout: Duration) -> Result<Bytes, Errno> {
        let Role::Follows(membership, ..) = self.attend() else { return Err(Errno::INVALID) };
        match membership.recv_timeout(timeout) {
            Ok(Some(message)) => Ok(message.data),
            Ok(None) => Err(Errno::AGAIN),
            Err(_) => Err(Errno::RESET),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Role::Leads(group, _) = &self.role {
            self.told.end(group.id());
        }
    }
}

fn refused(error: &OpenGroupError) -> Errno {
    log::say(Level::Warn, Subsystem::EndpointControl, || error.to_string());
    Errno::OTHER
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Its keeper is the parent's thread, and never ends in the child.
    #[test]
    fn a_forked_child_that_closes_its_parents_carrier_waits_for_no_thread() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let carrier = Carrier::open(&settings).unwrap();
        let mut status = -1;
        // SAFETY: what the child does waits for no lock of a thread that it does not have, and then it ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: numbers alone are passed.
            unsafe { libc::alarm(20) };
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(carrier)));
            // SAFETY: what is its parent's is left alone.
            unsafe { libc::_exit(i32::from(dropped.is_err())) };
        }
        // SAFETY: there is room for a status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "it waited until the alarm, or panicked");
    }

    #[test]
    fn who_hears_as_many_groups_as_it_can_listens_to_no_more_until_it_leaves_one() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let carrier = Carrier::open(&settings).unwrap();
        let address = |last: u8| SocketAddr::from(([239, 255, 79, last], 27_404));
        let mut seats: Vec<Seat> =
            (0..63).map(|last| Seat::listen(&carrier, address(last)).unwrap()).collect();
        assert_eq!(Seat::listen(&carrier, address(63)).unwrap_err(), Errno(crate::ffi::ENOSPC));
        seats.pop();
        assert!(Seat::listen(&carrier, address(63)).is_ok());
    }

    #[test]
    fn an_opener_knows_who_hears_its_group() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let open = || Carrier::open(&settings).unwrap();
        let (opener, hearer, deaf) = (open(), open(), open());
        let address = |last: u8| SocketAddr::from(([239, 255, 76, last], 27_408));
        // Who hears as many groups as it can.
        let _others: Vec<Seat> = (0..63).map(|last| Seat::listen(&deaf, address(last)).unwrap()).collect();
        let listener = deaf.node.join_group(address(63)).unwrap();
        assert!(!listener.is_heard());
        let long = Duration::from_secs(10);
        let mut seat = Seat::listen(&hearer, address(63)).unwrap();
        let members = [deaf.local_address(), hearer.local_address()];
        let lead = std::thread::scope(|scope| {
            let lead = scope.spawn(|| Seat::lead(&opener, address(63), &members, long));
            seat.accept(opener.local_address(), long).unwrap();
            listener.accept(long).unwrap();
            lead.join().unwrap().unwrap()
        });
        assert_eq!(lead.hearers(), [false, true]);
        assert!(seat.hearers().is_empty());
    }

    #[test]
    fn an_opener_hears_to_which_operation_its_members_have_come_and_that_one_is_gone() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let open = || Carrier::open(&settings).unwrap();
        let (opener, one, other) = (open(), open(), open());
        let group: SocketAddr = "239.255.77.5:27407".parse().unwrap();
        let (long, moment) = (Duration::from_secs(10), Duration::from_millis(20));
        let members = [one.local_address(), other.local_address()];
        let mut seats = [Seat::listen(&one, group).unwrap(), Seat::listen(&other, group).unwrap()];
        let lead = std::thread::scope(|scope| {
            let lead = scope.spawn(|| Seat::lead(&opener, group, &members, long));
            seats.iter_mut().for_each(|seat| seat.accept(opener.local_address(), long).unwrap());
            lead.join().unwrap().unwrap()
        });
        let [first, second] = seats;
        first.tell(1, long).unwrap();
        assert_eq!(lead.await_told(1, moment), Err(Errno::AGAIN), "one of two has come");
        second.tell(1, long).unwrap();
        assert_eq!(lead.await_told(1, long), Ok(()));
        assert_eq!(lead.await_told(2, moment), Err(Errno::AGAIN));
        // The wrong way round.
        assert_eq!(
            (lead.tell(1, moment), first.await_told(1, moment)),
            (Err(Errno::INVALID), Err(Errno::INVALID))
        );
        first.tell(2, long).unwrap();
        drop((second, other));
        let end = Instant::now() + long;
        while lead.await_told(2, moment) == Err(Errno::AGAIN) {
            assert!(Instant::now() < end, "nobody says that a member is gone");
        }
        assert_eq!(lead.await_told(2, moment), Err(Errno::RESET));
    }

    /// The thread that waits for the members of one group takes what those of the other have told.
    #[test]
    fn threads_that_wait_for_different_groups_hear_of_their_own() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let open = || Carrier::open(&settings).unwrap();
        let (opener, member) = (open(), open());
        let (long, members) = (Duration::from_secs(10), [member.local_address()]);
        let [(first, told_first), (second, told_second)] = [9, 10].map(|last| {
            let group = SocketAddr::from(([239, 255, 77, last], 27_409));
            let mut seat = Seat::listen(&member, group).unwrap();
            std::thread::scope(|scope| {
                let lead = scope.spawn(|| Seat::lead(&opener, group, &members, long).unwrap());
                seat.accept(opener.local_address(), long).unwrap();
                (lead.join().unwrap(), seat)
            })
        });
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| first.await_told(1, long));
            // It waits first with all likelihood, and so is the one that takes.
            std::thread::sleep(Duration::from_millis(50));
            let beside = scope.spawn(|| second.await_told(1, long));
            std::thread::sleep(Duration::from_millis(50));
            told_second.tell(1, long).unwrap();
            assert_eq!(beside.join().unwrap(), Ok(()));
            assert!(!waits.is_finished());
            told_first.tell(1, long).unwrap();
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn an_opener_that_is_silent_is_lost_after_the_time_that_was_set() {
        if !crate::engine::tests::a_peer_can_hang() {
            return;
        }
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let settings = Settings { failure_timeout: Duration::from_millis(300), ..settings };
        let carrier = Carrier::open(&settings).unwrap();
        // Nobody drives it once the group is open.
        let opener = Node::bind(settings.first_address(), settings.common_config()).unwrap();
        let address: SocketAddr = "239.255.77.4:27406".parse().unwrap();
        let mut seat = Seat::listen(&carrier, address).unwrap();
        let (members, options) = ([carrier.local_address()], GroupOptions::default());
        let _group = std::thread::scope(|scope| {
            let group = scope.spawn(|| opener.open_group(address, &members, options).unwrap());
            seat.accept(opener.local_addr(), Duration::from_secs(10)).unwrap();
            group.join().unwrap()
        });
        let end = Instant::now() + Duration::from_secs(10);
        while seat.receive(Duration::from_millis(100)) == Err(Errno::AGAIN) {
            assert!(Instant::now() < end);
        }
    }

    #[test]
    fn what_one_sends_all_others_receive_in_order() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let carriers: Vec<Carrier> = (0..3).map(|_| Carrier::open(&settings).unwrap()).collect();
        let address: SocketAddr = "239.255.77.3:27403".parse().unwrap();
        let long = Duration::from_secs(20);
        let mut members: Vec<Seat> =
            carriers[1..].iter().map(|carrier| Seat::listen(carrier, address).unwrap()).collect();
        let addresses: Vec<SocketAddr> = carriers[1..].iter().map(Carrier::local_address).collect();
        let leader = Seat::lead(&carriers[0], address, &addresses, long).unwrap();
        assert_eq!(leader.receive(Duration::ZERO), Err(Errno::INVALID));
        for member in &mut members {
            member.accept(carriers[0].local_address(), long).unwrap();
            assert_eq!(member.receive(Duration::ZERO), Err(Errno::AGAIN));
        }
        for len in [1, 100_000] {
            leader.send(&[&[7], &vec![7; len - 1]], long).unwrap();
        }
        for member in &members {
            assert_eq!(member.receive(long).unwrap().len(), 1);
            assert_eq!(member.receive(long).unwrap(), vec![7; 100_000]);
        }
        drop(leader);
        assert_eq!(members[0].receive(long), Err(Errno::RESET));
    }
}
