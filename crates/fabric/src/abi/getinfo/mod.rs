//! `fi_getinfo`: what there is, and whether it is what the caller wants.
//!
//! Inputs → outputs: hints → a list of offers, one per address of this host, allocated as libfabric
//! frees it; or "no data", with the reason in the log. Everything that is not supported is refused
//! here, so that nothing is later.

mod offer;

use crate::abi::{call, check_flags, guard};
use crate::error::Errno;
use crate::ffi::*;
use crate::interfaces::{self, Interface};
use crate::log::{self, Level, Subsystem};
use crate::settings::Settings;
use core::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// What data can be moved by.
const PRIMARY: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC;
/// What narrows those down.
const MODIFIERS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// What else can be asked for.
const SECONDARY: u64 =
    FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_RMA_EVENT | FI_LOCAL_COMM | FI_REMOTE_COMM;
const CAPS: u64 = PRIMARY | MODIFIERS | SECONDARY;
/// What applies to one side alone (fi_endpoint(3)).
const TX_CAPS: u64 = PRIMARY | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = PRIMARY
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_DIRECTED_RECV
    | FI_RMA_EVENT;
/// What a side may be asked for although it is the whole endpoint's.
const OF_BOTH: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_RMA_EVENT;
/// What whatever is sent may be told, for one operation or for all.
pub(super) const TX_OP_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA
    | FI_MORE;
/// What all receives may be told.
pub(super) const RX_OP_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV | FI_MORE;
/// Messages in the order sent; one-sided operations up to the eager size in the order begun.
const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_RAR
    | FI_ORDER_RAW
    | (1 << 3)
    | FI_ORDER_WAW
    | (0xf << 32)
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// What the call may be told; interfaces are looked for anew each time.
const FLAGS: u64 = FI_SOURCE | FI_NUMERICHOST | FI_PROV_ATTR_ONLY | FI_RESCAN | OFI_GETINFO;

/// Parts of a buffer, at most.
pub(super) const IOV_LIMIT: usize = 8;
/// Stretches of remote memory, at most.
pub(super) const RMA_IOV_LIMIT: usize = crate::engine::header::MAX_STRETCHES;
/// Operations under way at each endpoint: what libfabric's programs size their tables by. As many of the first as
/// are asked for, up to the second.
const TX_SIZE: usize = 8192;
const RX_SIZE: usize = 65_536;
/// Objects of each kind: as many as memory allows.
const MANY: usize = 65_536;
/// Messages are as large as memory allows.
pub(super) const MAX_MESSAGE: usize = 1 << 60;
/// A tag whose bits are all the application's.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Version of what is on the wire.
const PROTOCOL_VERSION: u32 = 1;

/// A reason to refuse, in words.
struct Refusal(String);

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

pub(super) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    call(|| {
        if out.is_null() {
            return Err(Errno::INVALID);
        }
        // A layered provider asks what it can put itself on: we need nothing on top of us.
        if flags & OFI_CORE_PROV_ONLY != 0 {
            return Err(Errno::NO_DATA);
        }
        check_flags(flags, FLAGS)?;
        // SAFETY: hints are null or valid, with all that libfabric 1.5 and later have.
        let wanted = unsafe { Wanted::read(version, hints) };
        let settings = Settings::from_environment();
        let places = wanted.and_then(|wanted| {
            // The log has said why.
            settings.cluster_key().map_err(|_| Refusal::from("the cluster key cannot be read"))?;
            // SAFETY: both are null or C strings.
            let (node, service) = unsafe { (text(node)?, text(service)?) };
            // SAFETY: the addresses are as long as the hints say.
            let places = unsafe { places(&settings, &wanted, node, service, flags, hints)? };
            Ok((wanted, places))
        });
        let (wanted, places) = places.map_err(|Refusal(reason)| {
            log::say(Level::Info, Subsystem::Core, || format!("not offered: {reason}"));
            Errno::NO_DATA
        })?;
        let mut first = core::ptr::null_mut();
        for place in places.iter().rev() {
            // SAFETY: nothing but our own new allocations is written.
            first = unsafe { offer::make(&settings, &wanted, place, first) };
        }
        // SAFETY: checked above.
        unsafe { *out = first };
        if first.is_null() { Err(Errno::NO_DATA) } else { Ok(()) }
    })
}

/// # Safety
/// `pointer` is null or a C string.
unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Refusal> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some).map_err(|_| "a name that is not text".into())
}

/// What the caller wants, as far as it says.
#[derive(Default)]
struct Wanted {
    caps: u64,
    threading: c_int,
    control_progress: c_int,
    data_progress: c_int,
    av_type: c_int,
    mr_mode: c_int,
    tx_caps: u64,
    rx_caps: u64,
    tx_op_flags: u64,
    tx_size: usize,
    rx_op_flags: u64,
    addr_format: u32,
    domain: Option<String>,
    tag_format: u64,
    regions: usize,
    api: u32,
}

impl Wanted {
    /// # Safety
    /// `hints` is null or valid.
    unsafe fn read(version: u32, hints: *const fi_info) -> Result<Self, Refusal> {
        let old = version < fi_version(1, 5);
        let mut wanted =
            Self { api: version, mr_mode: if old { FI_MR_SCALABLE } else { 0 }, ..Self::default() };
        // SAFETY: as the caller promises.
        let Some(hints) = (unsafe { hints.as_ref() }) else { return Ok(wanted) };
        wanted.addr_format = hints.addr_format;
        refuse_unless(hints.addr_format <= FI_SOCKADDR_IN6, || {
            format!("address format {}", hints.addr_format)
        })?;
        // SAFETY: attributes are null or valid.
        unsafe {
            wanted.read_endpoint(hints)?;
            if let Some(attr) = hints.domain_attr.as_ref() {
                wanted.read_domain(attr, old)?;
            }
            if let Some(attr) = hints.fabric_attr.as_ref() {
                let name = text(attr.name)?;
                refuse_unless(name.is_none_or(|name| name == "denrei"), || format!("fabric {name:?}"))?;
                let provider = text(attr.prov_name)?;
                let ours = provider.is_none_or(|name| name.eq_ignore_ascii_case("denrei"));
                refuse_unless(ours, || format!("provider {provider:?}"))?;
            }
        }
        Ok(wanted)
    }

    /// What an endpoint is to be able to do.
    ///
    /// # Safety
    /// Attributes are null or valid.
    unsafe fn read_endpoint(&mut self, hints: &fi_info) -> Result<(), Refusal> {
        refuse_unless(hints.caps & !CAPS == 0, || format!("capabilities {:#x}", hints.caps & !CAPS))?;
        self.caps = hints.caps;
        // SAFETY: as the caller promises.
        unsafe {
            hints.ep_attr.as_ref().map_or(Ok(()), |attr| self.read_ep(attr))?;
            hints.tx_attr.as_ref().map_or(Ok(()), |attr| self.read_tx(attr))?;
            hints.rx_attr.as_ref().map_or(Ok(()), |attr| self.read_rx(attr))?;
        }
        let beyond = (self.tx_caps | self.rx_caps) & !self.offered_caps();
        refuse_unless(beyond == 0, || {
            format!("transmit or receive capabilities {beyond:#x}, which the endpoint is not to have")
        })
    }

    fn read_ep(&mut self, attr: &fi_ep_attr) -> Result<(), Refusal> {
        refuse_unless(matches!(attr.type_, FI_EP_UNSPEC | FI_EP_RDM), || {
            format!("endpoint type {}", attr.type_)
        })?;
        refuse_unless(matches!(attr.protocol, 0 | FI_PROTO_DENREI), || {
            format!("protocol {}", attr.protocol)
        })?;
        let version = attr.protocol_version;
        refuse_unless(version <= PROTOCOL_VERSION, || format!("protocol version {version}"))?;
        refuse_unless(attr.max_msg_size <= MAX_MESSAGE, || format!("messages of {}", attr.max_msg_size))?;
        refuse_unless(attr.msg_prefix_size == 0, || "a message prefix".into())?;
        let eager = Settings::from_environment().limits.eager_bytes;
        let order = attr.max_order_raw_size.max(attr.max_order_war_size).max(attr.max_order_waw_size);
        refuse_unless(order <= eager, || format!("one-sided order up to {order} bytes, beyond {eager}"))?;
        refuse_unless(attr.tx_ctx_cnt <= 1 && attr.rx_ctx_cnt <= 1, || "several or shared contexts".into())?;
        refuse_unless(attr.auth_key_size == 0, || "authorization keys: set a cluster key".into())?;
        self.tag_format = attr.mem_tag_format;
        Ok(())
    }

    /// # Safety
    /// The name is null or a C string.
    unsafe fn read_domain(&mut self, attr: &fi_domain_attr, old: bool) -> Result<(), Refusal> {
        // SAFETY: as the caller promises.
        self.domain = unsafe { text(attr.name)? }.map(str::to_owned);
        let threading = attr.threading;
        refuse_unless((FI_THREAD_UNSPEC..=FI_THREAD_ENDPOINT).contains(&threading), || {
            format!("threading {threading}")
        })?;
        self.threading = threading;
        // 2.x adds one of control alone that promises more to us: unified progress.
        for (progress, most) in [(attr.control_progress, 3), (attr.data_progress, FI_PROGRESS_MANUAL)] {
            refuse_unless((0..=most).contains(&progress), || format!("progress {progress}"))?;
        }
        (self.control_progress, self.data_progress) = (attr.control_progress, attr.data_progress);
        refuse_unless((0..=FI_RM_ENABLED).contains(&attr.resource_mgmt), || "resource management".into())?;
        refuse_unless((0..=FI_AV_TABLE).contains(&attr.av_type), || {
            format!("address vector {}", attr.av_type)
        })?;
        self.av_type = attr.av_type;
        self.mr_mode = match attr.mr_mode {
            FI_MR_BASIC => FI_MR_BASIC,
            FI_MR_SCALABLE => FI_MR_SCALABLE,
            FI_MR_UNSPEC if old => FI_MR_SCALABLE,
            other if old => return Err(Refusal(format!("memory registration mode {other}"))),
            // What the caller could live with: we need none of it.
            _ => 0,
        };
        refuse_unless(attr.mr_key_size <= 8, || format!("memory keys of {} bytes", attr.mr_key_size))?;
        refuse_unless(attr.cq_data_size <= 8, || format!("completion data of {} bytes", attr.cq_data_size))?;
        let counts = [attr.cq_cnt, attr.ep_cnt, attr.tx_ctx_cnt, attr.rx_ctx_cnt, attr.cntr_cnt];
        refuse_unless(counts.iter().all(|count| *count <= MANY), || format!("counts of objects {counts:?}"))?;
        let contexts = attr.max_ep_tx_ctx.max(attr.max_ep_rx_ctx);
        refuse_unless(contexts <= 1, || "several contexts per endpoint".into())?;
        let shared = attr.max_ep_stx_ctx.max(attr.max_ep_srx_ctx);
        refuse_unless(shared == 0, || "shared contexts".into())?;
        refuse_unless(attr.auth_key_size == 0, || "authorization keys: set a cluster key".into())?;
        if !old {
            let caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
            refuse_unless(attr.caps & !caps == 0, || {
                format!("domain capabilities {:#x}", attr.caps & !caps)
            })?;
            refuse_unless(attr.mr_iov_limit <= IOV_LIMIT, || {
                format!("regions of {} parts", attr.mr_iov_limit)
            })?;
            refuse_unless(attr.max_err_data == 0, || "data of errors".into())?;
            self.regions = attr.mr_cnt;
        }
        Ok(())
    }

    fn read_tx(&mut self, attr: &fi_tx_attr) -> Result<(), Refusal> {
        self.tx_caps = caps_of(attr.caps, TX_CAPS)?;
        let flags = attr.op_flags & !TX_OP_FLAGS;
        refuse_unless(flags == 0, || format!("transmit flags {flags:#x}"))?;
        check_order(attr.msg_order, attr.comp_order)?;
        let eager = Settings::from_environment().limits.eager_bytes;
        refuse_unless(attr.inject_size <= eager, || {
            format!("inject of {} bytes: FI_DENREI_EAGER_BYTES is {eager}", attr.inject_size)
        })?;
        refuse_unless(attr.size <= RX_SIZE, || format!("{} operations at a time", attr.size))?;
        let iov = attr.iov_limit <= IOV_LIMIT && attr.rma_iov_limit <= RMA_IOV_LIMIT;
        refuse_unless(iov, || format!("buffers of {} parts", attr.iov_limit.max(attr.rma_iov_limit)))?;
        (self.tx_op_flags, self.tx_size) = (attr.op_flags, attr.size);
        Ok(())
    }

    fn read_rx(&mut self, attr: &fi_rx_attr) -> Result<(), Refusal> {
        self.rx_caps = caps_of(attr.caps, RX_CAPS)?;
        let flags = attr.op_flags & !RX_OP_FLAGS;
        refuse_unless(flags == 0, || format!("receive flags {flags:#x}"))?;
        check_order(attr.msg_order, attr.comp_order)?;
        let most = Settings::from_environment().limits.unexpected_bytes;
        refuse_unless(attr.total_buffered_recv <= most, || {
            format!(
                "{} bytes of early messages: FI_DENREI_UNEXPECTED_BYTES is {most}",
                attr.total_buffered_recv
            )
        })?;
        refuse_unless(attr.size <= RX_SIZE, || format!("{} receives at a time", attr.size))?;
        refuse_unless(attr.iov_limit <= IOV_LIMIT, || format!("buffers of {} parts", attr.iov_limit))?;
        self.rx_op_flags = attr.op_flags;
        Ok(())
    }

    /// What is offered: what was asked for, with what it implies, or everything.
    fn offered_caps(&self) -> u64 {
        if self.caps == 0 {
            return CAPS;
        }
        with_directions(self.caps) | FI_LOCAL_COMM | FI_REMOTE_COMM
    }

    /// The same of one side, which may have `own`: where it was asked for less, no other ways to move data.
    fn offered_caps_of(&self, asked: u64, own: u64) -> u64 {
        let ways = if asked == 0 { own } else { with_directions(asked) | SECONDARY };
        self.offered_caps() & (own & ways | asked)
    }
}

/// What is asked of one side. What is the other's alone is ignored, as in libfabric's own providers: Sandia OpenSHMEM
/// asks the receiving side for all that its endpoint can do.
fn caps_of(asked: u64, own: u64) -> Result<u64, Refusal> {
    let unknown = asked & !CAPS;
    refuse_unless(unknown == 0, || format!("transmit or receive capabilities {unknown:#x}"))?;
    Ok(asked & (own | OF_BOTH))
}

/// Capabilities with the directions that they imply.
fn with_directions(mut caps: u64) -> u64 {
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & (FI_SEND | FI_RECV) == 0 {
        caps |= FI_SEND | FI_RECV;
    }
    let remote = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & remote == 0 {
        caps |= remote;
    }
    caps
}

fn refuse_unless(fits: bool, reason: impl FnOnce() -> String) -> Result<(), Refusal> {
    if fits { Ok(()) } else { Err(Refusal(reason())) }
}

fn check_order(messages: u64, completions: u64) -> Result<(), Refusal> {
    let excess = messages & !ORDER;
    refuse_unless(excess == 0, || format!("message order {excess:#x}"))?;
    refuse_unless(completions == 0, || format!("completion order {completions:#x}"))
}

/// An offer's addresses.
struct Place {
    interface: Interface,
    port: u16,
    dest: Option<SocketAddr>,
}

/// # Safety
/// The hints' addresses are as long as they say.
unsafe fn places(
    settings: &Settings,
    wanted: &Wanted,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: *const fi_info,
) -> Result<Vec<Place>, Refusal> {
    let named = resolve(node, service, flags)?;
    // SAFETY: as the caller promises.
    let (hinted_source, hinted_dest) = match unsafe { hints.as_ref() } {
        None => (None, None),
        // SAFETY: as the caller promises.
        Some(hints) => unsafe {
            (hinted(hints.src_addr, hints.src_addrlen)?, hinted(hints.dest_addr, hints.dest_addrlen)?)
        },
    };
    let (source, dest) = match (named, flags & FI_SOURCE != 0) {
        (named @ Some(_), true) => (named, hinted_dest),
        (named, false) => (hinted_source, named.or(hinted_dest)),
        (None, true) => (hinted_source, hinted_dest),
    };
    let port = source.map_or(0, |address| address.port());
    let beyond = settings.may_leave_the_host();
    let mut found = interfaces::list(settings.iface.as_deref(), beyond);
    if !beyond {
        log::say(Level::Warn, Subsystem::Core, || {
            "only loopback is offered: name a cluster key by DENREI_KEY_FILE (denrei keygen makes one), or, where \
             you trust the network, set FI_DENREI_INSECURE=1"
                .to_owned()
        });
    }
    if let (true, Some(wished)) = (found.is_empty(), &settings.iface) {
        log::say(Level::Warn, Subsystem::Core, || interfaces::why_none(wished, beyond));
    }
    found.retain(|interface| {
        let ip = interface.address;
        source.is_none_or(|source| source.ip().is_unspecified() || source.ip() == ip)
            && dest.is_none_or(|dest| dest.is_ipv4() == ip.is_ipv4())
            && wanted.domain.as_deref().is_none_or(|domain| domain == interface.name)
            && match wanted.addr_format {
                FI_SOCKADDR_IN => ip.is_ipv4(),
                FI_SOCKADDR_IN6 => ip.is_ipv6(),
                _ => true,
            }
    });
    if found.is_empty() {
        return Err("no interface that fits is up, or may be used".into());
    }
    let is_loopback = |interface: &Interface| interface.address.is_loopback();
    // Open MPI spreads the ranks of a host over all that is offered, and other hosts cannot reach loopback.
    if !dest.is_some_and(|dest| dest.ip().is_loopback()) && !found.iter().all(is_loopback) {
        found.retain(|interface| !is_loopback(interface));
    }
    if let Some(dest) = dest {
        // The way to this host's own addresses is the shortest from there.
        found.sort_by_key(|interface| interface.address.is_loopback() != dest.ip().is_loopback());
    }
    Ok(found.into_iter().map(|interface| Place { interface, port, dest }).collect())
}

/// # Safety
/// The address is null, or as long as is said.
unsafe fn hinted(address: *const c_void, len: usize) -> Result<Option<SocketAddr>, Refusal> {
    // SAFETY: as the caller promises.
    let read = unsafe { crate::abi::address::read_address(address, len) };
    refuse_unless(read.is_some() || address.is_null() || len == 0, || "an address of no family here".into())?;
    Ok(read)
}

fn resolve(node: Option<&str>, service: Option<&str>, flags: u64) -> Result<Option<SocketAddr>, Refusal> {
    if node.is_none() && service.is_none() {
        return Ok(None);
    }
    let port = match service {
        None => 0,
        Some(service) => {
            let port = super::service::port_of(service);
            port.ok_or_else(|| {
                Refusal(format!("service {service:?} is no port, and none that the system knows"))
            })?
        }
    };
    let Some(node) = node else {
        return Ok(Some(SocketAddr::from(([0, 0, 0, 0], port))).filter(|_| flags & FI_SOURCE != 0));
    };
    if let Ok(ip) = node.parse::<IpAddr>() {
        return Ok(Some(SocketAddr::new(ip, port)));
    }
    if flags & FI_NUMERICHOST != 0 {
        return Err(Refusal(format!("{node:?} is not an address")));
    }
    let mut addresses: Vec<SocketAddr> =
        (node, port).to_socket_addrs().map_err(|error| Refusal(format!("{node}: {error}")))?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().map(Some).ok_or_else(|| Refusal(format!("{node} has no address")))
}

/// Whether an endpoint can be as an offer says that the caller may have changed; the log says why not.
///
/// # Safety
/// The attributes are null or valid.
pub(super) unsafe fn check_endpoint(info: &fi_info) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe { Wanted::default().read_endpoint(info) }.map_err(|Refusal(reason)| {
        log::say(Level::Warn, Subsystem::EndpointControl, || format!("no endpoint has {reason}"));
        Errno::INVALID
    })
}

/// Whether an offer, ours or a copy that the caller has changed, is used with automatic progress.
///
/// # Safety
/// `info` is null or valid.
pub(super) unsafe fn wants_progress(info: *const fi_info) -> bool {
    guard(false, || {
        // SAFETY: as the caller promises.
        unsafe { info.as_ref().and_then(|info| info.domain_attr.as_ref()) }.is_some_and(|attr| {
            attr.data_progress == FI_PROGRESS_AUTO || attr.control_progress == FI_PROGRESS_AUTO
        })
    })
}
