//! The endpoint object: opening, binding, enabling, options. Operations are in `msg`, `rma`, `atomic`.

use super::av::Av;
use super::cntr::Cntr;
use super::cq::Cq;
use super::domain::Domain;
use super::eq::Eq;
use super::getinfo::{RX_OP_FLAGS, TX_OP_FLAGS};
use super::refuse::{self, PLAIN};
use super::{Children, call, check_flags, class, count, hand_out, head, object, operation, take_back};
use crate::endpoint::Endpoint;
use crate::engine::Report;
use crate::engine::region_table::RegionTable;
use crate::engine::sources::Progress;
use crate::error::Errno;
use crate::ffi::*;
use crate::keeper::Keeps;
use crate::log::{self, Level, Subsystem};
use crate::settings::Settings;
use core::ffi::{c_int, c_void};
use libc::ssize_t;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Room that must be left in a buffer for several messages, unless set otherwise; bytes.
const MIN_MULTI_RECV: usize = 64;

#[repr(C)]
pub(super) struct Ep {
    head: fid_ep,
    pub(super) endpoint: Arc<Endpoint>,
    /// What operations do whose call takes no flags.
    pub(super) tx_flags: AtomicU64,
    pub(super) rx_flags: AtomicU64,
    tx_selective: AtomicBool,
    rx_selective: AtomicBool,
    pub(super) min_multi_recv: AtomicUsize,
    enabled: AtomicBool,
    pub(super) caps: u64,
    pub(super) inject_bytes: usize,
    setup: Mutex<Setup>,
    keeps: Keeps,
    /// What peers read and write by it.
    regions: Arc<RegionTable>,
    _domain: Children,
}

/// What was bound.
#[derive(Default)]
struct Setup {
    has_addresses: bool,
    transmits: bool,
    receives: bool,
    waitable: bool,
    bound: Vec<Children>,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), bind: Some(bind), control: Some(control), ..PLAIN };
static OPS: fi_ops_ep = fi_ops_ep {
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(refuse::endpoint_context),
    rx_ctx: Some(refuse::endpoint_context),
    rx_size_left: Some(size_left),
    tx_size_left: Some(size_left),
    ..fi_ops_ep::NONE
};
static CM_OPS: fi_ops_cm = fi_ops_cm {
    setname: Some(refuse::setname),
    getname: Some(getname),
    getpeer: Some(refuse::getpeer),
    connect: Some(refuse::connect),
    listen: Some(refuse::listen),
    accept: Some(refuse::accept),
    reject: Some(refuse::reject),
    shutdown: Some(refuse::shutdown),
    join: Some(refuse::join),
    ..fi_ops_cm::NONE
};

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { open2(domain, info, out, 0, context) }
}

pub(super) unsafe extern "C" fn open2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call(|| {
        if flags != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // SAFETY: libfabric's contract: a domain of ours, an info with what it names.
        let (domain, info) = unsafe { (object::<Domain, _>(domain)?, info.as_ref().ok_or(Errno::INVALID)?) };
        // SAFETY: as above.
        unsafe { super::getinfo::check_endpoint(info)? };
        // SAFETY: as above.
        let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
        // SAFETY: the address is as long as is said.
        let source = unsafe { super::address::read_address(info.src_addr, info.src_addrlen) };
        let settings = Settings::from_environment();
        let endpoint = open_endpoint(&settings, source, domain)?;
        let ep = Ep {
            head: fid_ep {
                fid: head(FI_CLASS_EP, context, &FID_OPS),
                ops: &OPS,
                cm: &CM_OPS,
                msg: &super::msg::MSG_OPS,
                rma: &super::rma::OPS,
                tagged: &super::msg::TAGGED_OPS,
                atomic: &super::atomic::OPS,
                collective: &super::refuse::COLLECTIVE,
            },
            endpoint,
            tx_flags: AtomicU64::new(tx.map_or(0, |attr| attr.op_flags)),
            rx_flags: AtomicU64::new(rx.map_or(0, |attr| attr.op_flags)),
            tx_selective: AtomicBool::new(false),
            rx_selective: AtomicBool::new(false),
            min_multi_recv: AtomicUsize::new(MIN_MULTI_RECV),
            enabled: AtomicBool::new(false),
            caps: info.caps,
            inject_bytes: settings.limits.eager_bytes,
            setup: Mutex::default(),
            keeps: domain.keeps,
            regions: Arc::clone(&domain.regions),
            _domain: domain.children(),
        };
        // SAFETY: the caller's.
        unsafe { hand_out(ep, out) }
    })
}

fn open_endpoint(
    settings: &Settings,
    source: Option<SocketAddr>,
    domain: &Domain,
) -> Result<Arc<Endpoint>, Errno> {
    let mut config = settings.node_config();
    config.cluster_key = settings.cluster_key()?;
    let address = source.unwrap_or_else(|| settings.first_address());
    Endpoint::open(address, config, Arc::clone(&domain.regions), settings.limits.clone())
        .inspect(|endpoint| {
            log::say(Level::Info, Subsystem::EndpointControl, || {
                let sealed = if settings.key_file.is_some() { "sealed" } else { "not sealed" };
                format!("endpoint at {}, {sealed}", endpoint.local_address())
            });
        })
        .map_err(|error| Errno::of_bind(&error))
}

impl Ep {
    /// The endpoint, if it may be used: it is enabled, and not a forked child's copy.
    pub(super) fn ready(&self) -> Result<&Endpoint, Errno> {
        let is_ready = self.enabled.load(Ordering::Acquire) && self.endpoint.is_own();
        if is_ready { Ok(&self.endpoint) } else { Err(Errno::BAD_STATE) }
    }

    /// Whether an operation of this side with these flags is reported when it went well.
    pub(super) fn reports_transmit(&self, flags: u64) -> bool {
        flags & FI_COMPLETION != 0 || !self.tx_selective.load(Ordering::Relaxed)
    }

    /// Whether a receive with these flags is reported when it went well.
    pub(super) fn reports_receive(&self, flags: u64) -> bool {
        flags & FI_COMPLETION != 0 || !self.rx_selective.load(Ordering::Relaxed)
    }

    /// What an operation of this side is reported as.
    pub(super) fn report(&self, context: *mut c_void, kind: u64, flags: u64) -> Report {
        Report { context: context as usize, flags: kind, wanted: self.reports_transmit(flags) }
    }

    fn progress(&self) -> Weak<dyn Progress> {
        let endpoint: Arc<dyn Progress> = self.endpoint.clone();
        Arc::downgrade(&endpoint)
    }

    /// # Safety
    /// `other` is an object of ours.
    unsafe fn bind(&self, other: *mut fid, flags: u64) -> Result<(), Errno> {
        let mut setup = self.setup.lock();
        // SAFETY: as the caller promises; the class says what it is.
        unsafe {
            let class = class(other);
            // Sandia OpenSHMEM binds counters to an endpoint that it has enabled.
            if class != FI_CLASS_CNTR {
                self.check_disabled()?;
            }
            match class {
                FI_CLASS_AV => {
                    check_flags(flags, 0)?;
                    if setup.has_addresses {
                        return Err(Errno::INVALID);
                    }
                    let av = object::<Av, _>(other)?;
                    self.endpoint.engine().set_addresses(Arc::clone(&av.addresses));
                    setup.has_addresses = true;
                    setup.bound.push(av.children.clone());
                }
                FI_CLASS_CQ => self.bind_queue(&mut setup, object::<Cq, _>(other)?, flags)?,
                FI_CLASS_CNTR => self.bind_counter(&mut setup, object::<Cntr, _>(other)?, flags)?,
                FI_CLASS_EQ => {
                    check_flags(flags, 0)?;
                    setup.bound.push(object::<Eq, _>(other)?.children.clone());
                }
                _ => return Err(Errno::INVALID),
            }
        }
        Ok(())
    }

    fn check_disabled(&self) -> Result<(), Errno> {
        if self.enabled.load(Ordering::Acquire) { Err(Errno::BAD_STATE) } else { Ok(()) }
    }

    fn bind_counter(&self, setup: &mut Setup, cntr: &Cntr, flags: u64) -> Result<(), Errno> {
        let kinds = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        if flags & !kinds != 0 || flags == 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // Whether somebody works for those who sleep is decided when the endpoint is enabled.
        if cntr.is_waitable() {
            self.check_disabled()?;
        }
        let mut engine = self.endpoint.engine();
        let counters = &mut engine.sinks.counters;
        // Each kind has one counter.
        if counters.iter().any(|(counted, _)| counted & flags != 0) {
            return Err(Errno::INVALID);
        }
        counters.push((flags, Arc::clone(&cntr.counter)));
        // Others may be looking at the counter, and wait for the engine.
        drop(engine);
        cntr.counter.sources.add(self.progress());
        setup.transmits |= flags & (FI_SEND | FI_READ | FI_WRITE) != 0;
        setup.receives |= flags & FI_RECV != 0;
        setup.waitable |= cntr.is_waitable();
        setup.bound.push(cntr.children.clone());
        Ok(())
    }

    fn bind_queue(&self, setup: &mut Setup, cq: &Cq, flags: u64) -> Result<(), Errno> {
        if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 || flags & (FI_SEND | FI_RECV) == 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let selective = flags & FI_SELECTIVE_COMPLETION != 0;
        let sinks = &mut self.endpoint.engine().sinks;
        let is_taken = |flag, queue: &Option<_>| flags & flag != 0 && queue.is_some();
        // Not for one direction alone either.
        if is_taken(FI_SEND, &sinks.transmit) || is_taken(FI_RECV, &sinks.receive) {
            return Err(Errno::INVALID);
        }
        cq.queue.sources.add(self.progress());
        if flags & FI_SEND != 0 {
            sinks.transmit = Some(Arc::clone(&cq.queue));
            self.tx_selective.store(selective, Ordering::Relaxed);
            setup.transmits = true;
        }
        if flags & FI_RECV != 0 {
            sinks.receive = Some(Arc::clone(&cq.queue));
            self.rx_selective.store(selective, Ordering::Relaxed);
            setup.receives = true;
        }
        setup.waitable |= cq.is_waitable();
        setup.bound.push(cq.children.clone());
        Ok(())
    }

    fn enable(&self) -> Result<(), Errno> {
        let setup = self.setup.lock();
        if !setup.has_addresses {
            return Err(Errno::NO_AV);
        }
        let transmits = self.caps & (FI_SEND | FI_READ | FI_WRITE) != 0;
        let receives = self.caps & FI_RECV != 0;
        if (transmits && !setup.transmits) || (receives && !setup.receives) {
            return Err(Errno::NO_CQ);
        }
        let keeps = if setup.waitable { Keeps::Driving } else { self.keeps };
        self.endpoint.enable(keeps).map_err(|error| Errno(error.raw_os_error().unwrap_or(EAGAIN)))?;
        self.regions.add_endpoint(&self.progress());
        self.enabled.store(true, Ordering::Release);
        Ok(())
    }

    /// Flags of operations that take none, by direction, and which there may be.
    fn op_flags(&self, direction: u64) -> Result<(&AtomicU64, u64), Errno> {
        match direction & (FI_SEND | FI_RECV) {
            FI_SEND => Ok((&self.tx_flags, TX_OP_FLAGS)),
            FI_RECV => Ok((&self.rx_flags, RX_OP_FLAGS)),
            _ => Err(Errno::INVALID),
        }
    }
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: objects of ours, by libfabric's contract.
    call(|| unsafe { object::<Ep, _>(fid)?.bind(other, flags) })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    call(|| {
        // SAFETY: an endpoint of ours; what `arg` points to is what the command says.
        unsafe {
            let ep = object::<Ep, _>(fid)?;
            match command {
                FI_ENABLE => ep.enable(),
                FI_GETOPSFLAG | FI_SETOPSFLAG => {
                    let value = arg.cast::<u64>().as_mut().ok_or(Errno::INVALID)?;
                    let (flags, known) = ep.op_flags(*value)?;
                    let direction = *value & (FI_SEND | FI_RECV);
                    if command == FI_GETOPSFLAG {
                        *value = flags.load(Ordering::Relaxed);
                    } else {
                        check_flags(*value & !direction, known)?;
                        flags.store(*value & !direction, Ordering::Relaxed);
                    }
                    Ok(())
                }
                _ => Err(Errno::NO_SYSTEM),
            }
        }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    call(|| {
        // SAFETY: an endpoint of ours, by libfabric's contract.
        let ep = unsafe { take_back::<Ep, _>(fid)? };
        ep.endpoint.close();
        Ok(())
    })
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> ssize_t {
    operation(|| {
        // SAFETY: an endpoint of ours, by libfabric's contract.
        let ep = unsafe { object::<Ep, _>(fid)? };
        let found = ep.ready()?.engine().cancel(context as usize);
        if found { Ok(()) } else { Err(Errno(libc::ENOENT)) }
    })
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: an endpoint of ours and a value as long as is said, by libfabric's contract.
        unsafe {
            let ep = object::<Ep, _>(fid)?;
            let len = len.as_mut().ok_or(Errno::INVALID)?;
            let current = match (level, name) {
                (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => ep.min_multi_recv.load(Ordering::Relaxed),
                (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) => 0,
                _ => return Err(Errno::NO_OPTION),
            };
            if value.is_null() || *len < size_of::<usize>() {
                return Err(Errno::TOO_SMALL);
            }
            *len = size_of::<usize>();
            value.cast::<usize>().write_unaligned(current);
        }
        Ok(())
    })
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: an endpoint of ours and a value as long as is said, by libfabric's contract.
        unsafe {
            let ep = object::<Ep, _>(fid)?;
            if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
                return Err(Errno::NO_OPTION);
            }
            if value.is_null() || len < size_of::<usize>() {
                return Err(Errno::INVALID);
            }
            ep.min_multi_recv.store(value.cast::<usize>().read_unaligned(), Ordering::Relaxed);
        }
        Ok(())
    })
}

/// How many more may be begun: what is under way is bounded by bytes, and `EAGAIN` says when.
unsafe extern "C" fn size_left(_: *mut fid_ep) -> ssize_t {
    const SOME: usize = 1024;
    count(|| Ok(SOME))
}

unsafe extern "C" fn getname(fid: *mut fid, address: *mut c_void, len: *mut usize) -> c_int {
    call(|| {
        // SAFETY: an endpoint of ours and room as is said, by libfabric's contract.
        unsafe {
            let ep = object::<Ep, _>(fid)?;
            super::address::write_address(ep.endpoint.local_address(), address, len, true)
        }
    })
}
