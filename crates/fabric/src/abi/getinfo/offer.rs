//! One offer of `fi_getinfo`, in memory that libfabric frees.
//!
//! Inputs → outputs: what is wanted, and an address → a `fi_info` with all that belongs to it.

use super::*;

/// Memory of zeroes as libfabric frees it.
fn allocate<T>() -> *mut T {
    // SAFETY: `calloc` may be called with any sizes.
    let memory = unsafe { libc::calloc(1, size_of::<T>()) };
    memory.cast()
}

fn duplicate(text: &str) -> *mut c_char {
    let Ok(text) = std::ffi::CString::new(text) else { return core::ptr::null_mut() };
    // SAFETY: a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// A copy of an address, and its length.
fn duplicate_address(address: SocketAddr) -> (*mut c_void, usize) {
    let octets = crate::abi::address::octets_of(address);
    // SAFETY: as many bytes are copied as were allocated.
    unsafe {
        let memory = libc::malloc(octets.len());
        if !memory.is_null() {
            core::ptr::copy_nonoverlapping(octets.as_ptr(), memory.cast(), octets.len());
        }
        (memory, octets.len())
    }
}

/// Makes one offer, before `next`. Without memory there is none.
///
/// # Safety
/// `next` is null or an offer.
pub(super) unsafe fn make(
    settings: &Settings,
    wanted: &Wanted,
    place: &Place,
    next: *mut fi_info,
) -> *mut fi_info {
    let info: *mut fi_info = allocate();
    let (tx, rx) = (allocate::<fi_tx_attr>(), allocate::<fi_rx_attr>());
    let (ep, domain, fabric) =
        (allocate::<fi_ep_attr>(), allocate::<fi_domain_attr>(), allocate::<fi_fabric_attr>());
    if [info.is_null(), tx.is_null(), rx.is_null(), ep.is_null(), domain.is_null(), fabric.is_null()]
        .contains(&true)
    {
        // Without memory for this there is none for freeing it in order either.
        return next;
    }
    let caps = wanted.offered_caps();
    let source = SocketAddr::new(place.interface.address, place.port);
    // SAFETY: all were just allocated, as large as they are, and zero is a value of every field.
    unsafe {
        let info_ = &mut *info;
        info_.next = next;
        info_.caps = caps;
        info_.addr_format = if source.is_ipv4() { FI_SOCKADDR_IN } else { FI_SOCKADDR_IN6 };
        (info_.src_addr, info_.src_addrlen) = duplicate_address(source);
        if let Some(dest) = place.dest {
            (info_.dest_addr, info_.dest_addrlen) = duplicate_address(dest);
        }
        (info_.tx_attr, info_.rx_attr, info_.ep_attr) = (tx, rx, ep);
        (info_.domain_attr, info_.fabric_attr) = (domain, fabric);
        fill_tx(&mut *tx, settings, wanted);
        fill_rx(&mut *rx, settings, wanted);
        fill_ep(&mut *ep, settings, wanted);
        fill_domain(&mut *domain, wanted, &place.interface.name);
        let fabric = &mut *fabric;
        fabric.name = duplicate("denrei");
        // libfabric fills in the provider's name.
        fabric.prov_version = crate::abi::PROVIDER_VERSION;
        fabric.api_version = wanted.api;
    }
    info
}

fn fill_tx(attr: &mut fi_tx_attr, settings: &Settings, wanted: &Wanted) {
    attr.caps = wanted.offered_caps_of(wanted.tx_caps, TX_CAPS);
    attr.op_flags = wanted.tx_op_flags;
    attr.msg_order = ORDER;
    attr.inject_size = settings.limits.eager_bytes;
    attr.size = TX_SIZE.max(wanted.tx_size);
    attr.iov_limit = IOV_LIMIT;
    attr.rma_iov_limit = RMA_IOV_LIMIT;
}

fn fill_rx(attr: &mut fi_rx_attr, settings: &Settings, wanted: &Wanted) {
    attr.caps = wanted.offered_caps_of(wanted.rx_caps, RX_CAPS);
    attr.op_flags = wanted.rx_op_flags;
    attr.msg_order = ORDER;
    attr.total_buffered_recv = settings.limits.unexpected_bytes;
    attr.size = RX_SIZE;
    attr.iov_limit = IOV_LIMIT;
}

fn fill_ep(attr: &mut fi_ep_attr, settings: &Settings, wanted: &Wanted) {
    attr.type_ = FI_EP_RDM;
    attr.protocol = FI_PROTO_DENREI;
    attr.protocol_version = PROTOCOL_VERSION;
    attr.max_msg_size = MAX_MESSAGE;
    attr.max_order_raw_size = settings.limits.eager_bytes;
    attr.max_order_war_size = settings.limits.eager_bytes;
    attr.max_order_waw_size = settings.limits.eager_bytes;
    attr.mem_tag_format = if wanted.tag_format == 0 { TAG_FORMAT } else { wanted.tag_format };
    attr.tx_ctx_cnt = 1;
    attr.rx_ctx_cnt = 1;
}

fn fill_domain(attr: &mut fi_domain_attr, wanted: &Wanted, name: &str) {
    let or = |wish, default| if wish == 0 { default } else { wish };
    attr.name = duplicate(name);
    // Programs compare these with what they asked for.
    attr.threading = or(wanted.threading, FI_THREAD_SAFE);
    attr.control_progress = or(wanted.control_progress, FI_PROGRESS_MANUAL);
    attr.data_progress = or(wanted.data_progress, FI_PROGRESS_MANUAL);
    attr.resource_mgmt = FI_RM_ENABLED;
    attr.av_type = wanted.av_type;
    attr.mr_mode = wanted.mr_mode;
    attr.mr_key_size = 8;
    attr.cq_data_size = 8;
    attr.cq_cnt = MANY;
    attr.ep_cnt = MANY;
    attr.tx_ctx_cnt = MANY;
    attr.rx_ctx_cnt = MANY;
    attr.max_ep_tx_ctx = 1;
    attr.max_ep_rx_ctx = 1;
    attr.cntr_cnt = MANY;
    attr.mr_iov_limit = IOV_LIMIT;
    attr.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    attr.mr_cnt = MANY.max(wanted.regions);
    attr.max_cntr_value = u64::MAX;
    attr.max_err_cntr_value = u64::MAX;
}
