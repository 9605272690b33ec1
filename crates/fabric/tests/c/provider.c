/* Every call of the provider, over libfabric itself: two endpoints of one process, on loopback.
 * Prints a line per check that does not hold; the exit status says whether all do. */
#include "sides.h"
#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

static int offered(struct fi_info *hints)
{
	struct fi_info *found = NULL;
	int status = fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &found);
	if (!status)
		fi_freeinfo(found);
	fi_freeinfo(hints);
	return status;
}

#define REFUSED(change) do { struct fi_info *h = hints_of(); change; CHECK(offered(h) == -FI_ENODATA); } while (0)

static void refusals(void)
{
	CHECK(offered(hints_of()) == 0);
	setenv("FI_DENREI_KEY_FILE", "/nowhere/key", 1);
	CHECK(offered(hints_of()) == -FI_ENODATA);
	unsetenv("FI_DENREI_KEY_FILE");
	REFUSED(h->caps |= FI_MULTICAST);
	REFUSED(h->caps |= FI_COLLECTIVE);
	REFUSED(h->caps |= FI_HMEM);
	REFUSED(h->ep_attr->type = FI_EP_MSG);
	REFUSED(h->ep_attr->type = FI_EP_DGRAM);
	REFUSED(h->ep_attr->tx_ctx_cnt = 2);
	REFUSED(h->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT);
	REFUSED(h->ep_attr->max_msg_size = (size_t)-1);
	REFUSED(h->addr_format = FI_SOCKADDR_IB);
	REFUSED(h->tx_attr->inject_size = 1 << 30);
	REFUSED(h->tx_attr->iov_limit = 1000);
	REFUSED(h->rx_attr->iov_limit = 1000);
	REFUSED(h->tx_attr->comp_order = FI_ORDER_STRICT);
	REFUSED(h->tx_attr->msg_order = FI_ORDER_SAW);
	REFUSED(h->tx_attr->op_flags = FI_COMMIT_COMPLETE);
	REFUSED(h->domain_attr->cq_data_size = 16);
	REFUSED(h->domain_attr->data_progress = 3);
	REFUSED(h->domain_attr->max_err_data = 8);
	REFUSED(h->src_addr = calloc(1, 4); h->src_addrlen = 4);
	REFUSED(h->dest_addr = calloc(1, 16); h->dest_addrlen = 16);
	/* One side cannot have what the endpoint has not. */
	REFUSED(h->caps = FI_TAGGED; h->tx_attr->caps = FI_TAGGED | FI_RMA);
	REFUSED(h->caps = FI_TAGGED | FI_RECV; h->tx_attr->caps = FI_TAGGED | FI_SEND);
	REFUSED(h->caps = FI_TAGGED; h->rx_attr->caps = FI_TAGGED | FI_DIRECTED_RECV);
	REFUSED(h->domain_attr->mr_key_size = 16);
	REFUSED(h->domain_attr->max_ep_tx_ctx = 4);
	REFUSED(h->domain_attr->name = strdup("nosuch0"));
	REFUSED(h->fabric_attr->name = strdup("another"));
}

/* What is asked for is given, or more. */
static void sizes(void)
{
	struct fi_info *hints = hints_of(), *found;
	hints->tx_attr->size = 20000;
	OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &found));
	CHECK(found->tx_attr->size >= 20000 && found->rx_attr->size >= 1);
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* A side that is asked for less moves data in no other way. */
static void sides_caps(void)
{
	struct fi_info *hints = hints_of(), *found;
	const uint64_t moves = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV;
	hints->tx_attr->caps = FI_TAGGED;
	hints->rx_attr->caps = FI_MSG;
	OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &found));
	CHECK((found->caps & hints->caps) == hints->caps);
	CHECK((found->tx_attr->caps & moves) == (FI_TAGGED | FI_SEND));
	CHECK((found->rx_attr->caps & moves) == (FI_MSG | FI_RECV) && found->rx_attr->caps & FI_DIRECTED_RECV);
	/* What is the whole endpoint's is said there, and of a side only when asked. */
	CHECK(!((found->tx_attr->caps | found->rx_attr->caps) & (FI_LOCAL_COMM | FI_REMOTE_COMM)));
	fi_freeinfo(found);
	hints->tx_attr->caps |= FI_LOCAL_COMM;
	OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &found));
	CHECK(found->tx_attr->caps & FI_LOCAL_COMM);
	fi_freeinfo(found);
	/* What is the other side's alone is ignored. */
	hints->tx_attr->caps |= FI_RECV;
	hints->rx_attr->caps |= FI_SEND;
	OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &found));
	CHECK(!(found->tx_attr->caps & FI_RECV) && !(found->rx_attr->caps & FI_SEND));
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

static void vectors(void)
{
	char address[64], text[64];
	size_t len = sizeof address, text_len = sizeof text;
	fi_addr_t one;
	OK(fi_av_lookup(sides[0].av, sides[0].peer, address, &len));
	CHECK(strstr(fi_av_straddr(sides[0].av, address, text, &text_len), "127.0.0.1"));
	CHECK(fi_av_insert(sides[0].av, address, 1, &one, 0, NULL) == 1);
	if (!access("/etc/services", R_OK)) {
		struct sockaddr_in named;
		struct fi_info *hints = hints_of(), *found = NULL;
		size_t named_len = sizeof named;
		OK(fi_av_remove(sides[0].av, &one, 1, 0));
		CHECK(fi_av_insertsvc(sides[0].av, "127.0.0.1", "http", &one, 0, NULL) == 1);
		OK(fi_av_lookup(sides[0].av, one, &named, &named_len));
		CHECK(ntohs(named.sin_port) == 80);
		OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", "http", 0, hints, &found));
		CHECK(found && ntohs(((struct sockaddr_in *)found->dest_addr)->sin_port) == 80);
		fi_freeinfo(found);
		fi_freeinfo(hints);
	}
	OK(fi_av_remove(sides[0].av, &one, 1, 0));
	CHECK(fi_av_remove(sides[0].av, &one, 1, 0) == -FI_EINVAL);
	CHECK(fi_av_insertsvc(sides[0].av, "127.0.0.1", "9", &one, 0, NULL) == 1);
	OK(fi_av_remove(sides[0].av, &one, 1, 0));
	CHECK(fi_av_insertsym(sides[0].av, "127.0.0.1", 2, "9", 2, (fi_addr_t[4]){0}, 0, NULL) == 4);
	CHECK(fi_tsend(sides[0].ep, out, 1, NULL, 999, 0, NULL) == -FI_EADDRNOTAVAIL);
}

static void tagged(size_t len)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct iovec iov[2] = { { in, len / 2 }, { in + len / 2, len - len / 2 } };
	struct iovec from[2] = { { out, len / 3 }, { out + len / 3, len - len / 3 } };
	struct fi_msg_tagged message = { .msg_iov = from, .iov_count = 2, .addr = a->peer, .tag = 9, .data = 77,
		.context = (void *)3 };
	fi_addr_t source = 0;
	for (size_t i = 0; i < len; i++)
		out[i] = (char)(i * 7 + i / 251);
	memset(in, 0, sizeof in);
	OK(fi_trecv(b->ep, in, sizeof in, NULL, b->peer, 5, 0xf0, (void *)1));
	OK(fi_tsenddata(a->ep, out, len, NULL, 42, a->peer, 0x55, (void *)2));
	CHECK(next(b, &source) == 1 && entry.op_context == (void *)1 && entry.len == len && entry.tag == 0x55);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA && entry.data == 42 && source == b->peer);
	CHECK(!memcmp(in, out, len));
	CHECK(next(a, NULL) == 1 && entry.op_context == (void *)2 && entry.flags & FI_SEND);
	memset(in, 0, sizeof in);
	OK(fi_trecvv(b->ep, iov, NULL, 2, FI_ADDR_UNSPEC, 9, 0, (void *)1));
	OK(fi_tsendmsg(a->ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE));
	CHECK(next(b, NULL) == 1 && entry.data == 77 && !memcmp(in, out, len));
	CHECK(next(a, NULL) == 1 && entry.op_context == (void *)3);
	memset(in, 0, sizeof in);
	OK(fi_tsendmsg(a->ep, &message, FI_COMPLETION | FI_MATCH_COMPLETE));
	OK(fi_trecv(b->ep, in, sizeof in, NULL, b->peer, 9, 0, (void *)1));
	CHECK(next(b, NULL) == 1 && entry.len == len && !memcmp(in, out, len));
	CHECK(next(a, NULL) == 1 && entry.op_context == (void *)3);
	OK(fi_trecv(b->ep, in, len / 2, NULL, b->peer, 6, 0, (void *)4));
	OK(fi_tsend(a->ep, out, len, NULL, a->peer, 6, (void *)5));
	CHECK(next(b, NULL) == -FI_ETRUNC && error_entry.len == len / 2 && error_entry.olen == len - len / 2);
	CHECK(error_entry.op_context == (void *)4 && error_entry.tag == 6);
	CHECK(next(a, NULL) == 1);
}

static void peek(size_t len)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct iovec iov = { in, sizeof in };
	struct fi_msg_tagged message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 3,
		.context = (void *)8 };
	double end = now() + 10;
	int status;
	OK(fi_trecvmsg(b->ep, &message, FI_PEEK));
	CHECK(next(b, NULL) == -FI_ENOMSG && error_entry.op_context == (void *)8);
	OK(fi_tsend(a->ep, out, len, NULL, a->peer, 3, (void *)1));
	do {
		fi_cq_read(a->cq, NULL, 0);
		OK(fi_trecvmsg(b->ep, &message, FI_PEEK | FI_CLAIM));
		status = next(b, NULL);
	} while (status == -FI_ENOMSG && now() < end);
	CHECK(status == 1 && entry.len == len && entry.tag == 3);
	OK(fi_trecvmsg(b->ep, &message, FI_PEEK));
	CHECK(next(b, NULL) == -FI_ENOMSG);
	/* Another cannot be claimed under the same context: the first would be lost. */
	OK(fi_trecvmsg(b->ep, &message, FI_PEEK | FI_CLAIM));
	CHECK(next(b, NULL) == -FI_EINVAL);
	CHECK(fi_trecvmsg(b->ep, &message, FI_DISCARD) == -FI_EBADFLAGS);
	memset(in, 0, sizeof in);
	OK(fi_trecvmsg(b->ep, &message, FI_CLAIM));
	CHECK(next(b, NULL) == 1 && entry.op_context == (void *)8 && entry.len == len && !memcmp(in, out, len));
	CHECK(next(a, NULL) == 1);
}

static void messages(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	size_t least = 100, len = sizeof least;
	struct iovec iov = { in, 250 };
	struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = (void *)6 };
	OK(fi_recv(b->ep, in, sizeof in, NULL, b->peer, (void *)1));
	OK(fi_inject(a->ep, out, 10, a->peer));
	CHECK(next(b, NULL) == 1 && entry.len == 10 && entry.flags & FI_MSG && entry.flags & FI_RECV);
	CHECK(fi_inject(a->ep, out, LARGE, a->peer) == -FI_EMSGSIZE);
	OK(fi_recv(b->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, (void *)1));
	OK(fi_injectdata(a->ep, out, 10, 5, a->peer));
	CHECK(next(b, NULL) == 1 && entry.data == 5);
	OK(fi_setopt(&b->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	OK(fi_getopt(&b->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len));
	CHECK(least == 100);
	CHECK(fi_setopt(&b->ep->fid, FI_OPT_ENDPOINT, 77, &least, sizeof least) == -FI_ENOPROTOOPT);
	OK(fi_recvmsg(b->ep, &message, FI_MULTI_RECV));
	OK(fi_send(a->ep, out, 100, NULL, a->peer, (void *)2));
	CHECK(next(a, NULL) == 1 && next(b, NULL) == 1 && entry.buf == in && !(entry.flags & FI_MULTI_RECV));
	OK(fi_send(a->ep, out, 100, NULL, a->peer, (void *)2));
	CHECK(next(a, NULL) == 1 && next(b, NULL) == 1 && entry.buf == in + 100 && entry.flags & FI_MULTI_RECV);
	OK(fi_recv(b->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, (void *)9));
	OK(fi_cancel(&b->ep->fid, (void *)9));
	CHECK(next(b, NULL) == -FI_ECANCELED && error_entry.op_context == (void *)9);
	CHECK(fi_cancel(&b->ep->fid, (void *)9) == -FI_ENOENT);
	/* To oneself. */
	OK(fi_recv(a->ep, in, sizeof in, NULL, a->self, (void *)1));
	OK(fi_send(a->ep, out, LARGE, NULL, a->self, (void *)2));
	CHECK(next(a, NULL) == 1 && next(a, NULL) == 1 && !memcmp(in, out, LARGE));
}

static void one_sided(size_t len)
{
	struct side *a = &sides[0], *b = &sides[1];
	uint64_t before = fi_cntr_read(a->cntr);
	struct fid_mr *mr, *again;
	OK(fi_mr_reg(domain, in, sizeof in, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 123, 0, &mr, NULL));
	CHECK(fi_mr_key(mr) == 123);
	CHECK(fi_mr_reg(domain, in, 8, FI_REMOTE_READ, 0, 123, 0, &again, NULL) == -FI_ENOKEY);
	memset(in, 0, sizeof in);
	OK(fi_writedata(a->ep, out, len, NULL, 99, a->peer, 8, 123, (void *)1));
	CHECK(next(b, NULL) == 1 && entry.data == 99 && entry.flags & FI_REMOTE_WRITE && entry.len == len);
	CHECK(next(a, NULL) == 1 && entry.op_context == (void *)1 && entry.flags & FI_WRITE);
	CHECK(!memcmp(in + 8, out, len));
	memset(out, 0, len);
	OK(fi_read(a->ep, out, len, NULL, a->peer, 8, 123, (void *)2));
	CHECK(next(a, NULL) == 1 && entry.flags & FI_READ && !memcmp(in + 8, out, len));
	OK(fi_inject_write(a->ep, "abcd", 4, a->peer, 0, 123));
	for (double end = now() + 10; fi_cntr_read(a->cntr) < before + 3 && now() < end;)
		fi_cq_read(b->cq, NULL, 0);
	OK(fi_cntr_wait(a->cntr, before + 3, 0));
	CHECK(!memcmp(in, "abcd", 4));
	OK(fi_write(a->ep, out, 8, NULL, a->peer, sizeof in, 123, (void *)3));
	CHECK(next(a, NULL) == -FI_ENOKEY && error_entry.op_context == (void *)3);
	CHECK(fi_cntr_readerr(a->cntr) > 0);
	OK(fi_close(&mr->fid));
	OK(fi_read(a->ep, out, 8, NULL, a->peer, 0, 123, (void *)3));
	CHECK(next(a, NULL) == -FI_ENOKEY);
}

static void atomics(void)
{
	struct side *a = &sides[0];
	struct fi_atomic_attr attr;
	struct fid_mr *mr;
	uint64_t there[2] = { 5, 6 }, operand[2] = { 10, 20 }, compare[2] = { 15, 0 }, result[2] = { 0, 0 };
	size_t count = 0;
	OK(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL));
	OK(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, 0));
	CHECK(attr.size == 8 && attr.count > 1);
	CHECK(fi_query_atomic(domain, FI_LONG_DOUBLE, FI_SUM, &attr, 0) == -FI_EOPNOTSUPP);
	OK(fi_atomicvalid(a->ep, FI_DOUBLE, FI_MIN, &count));
	CHECK(fi_atomicvalid(a->ep, FI_DOUBLE, FI_BXOR, &count) == -FI_EOPNOTSUPP);
	OK(fi_atomic(a->ep, operand, 2, NULL, a->peer, 0, 7, FI_UINT64, FI_SUM, (void *)1));
	CHECK(next(a, NULL) == 1 && there[0] == 15 && there[1] == 26);
	OK(fi_fetch_atomic(a->ep, operand, 2, NULL, result, NULL, a->peer, 0, 7, FI_UINT64, FI_MAX, (void *)2));
	CHECK(next(a, NULL) == 1 && result[0] == 15 && result[1] == 26 && there[0] == 15 && there[1] == 26);
	OK(fi_compare_atomic(a->ep, operand, 2, NULL, compare, NULL, result, NULL, a->peer, 0, 7, FI_UINT64, FI_CSWAP,
		(void *)3));
	CHECK(next(a, NULL) == 1 && there[0] == 10 && there[1] == 26);
	OK(fi_close(&mr->fid));
}

static void waiting(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid *fids[1];
	char name[64];
	size_t len = sizeof name;
	fi_addr_t self;
	struct pollfd poller = { .events = POLLIN };
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
	OK(fi_enable(ep));
	OK(fi_getname(&ep->fid, name, &len));
	CHECK(fi_av_insert(sides[0].av, name, 1, &self, 0, NULL) == 1);
	OK(fi_control(&cq->fid, FI_GETWAIT, &poller.fd));
	fids[0] = &cq->fid;
	OK(fi_trywait(fabric, fids, 1));
	CHECK(fi_cq_sread(cq, &entry, 1, NULL, 20) == -FI_EAGAIN);
	CHECK(poll(&poller, 1, 20) == 0);
	struct iovec iov = { in, 100 };
	struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC };
	/* Not asked to be reported, then asked. */
	OK(fi_recvmsg(ep, &message, 0));
	OK(fi_recvmsg(ep, &message, FI_COMPLETION));
	OK(fi_inject(sides[0].ep, out, 10, self));
	OK(fi_inject(sides[0].ep, out, 20, self));
	fi_cq_read(sides[0].cq, NULL, 0);
	CHECK(poll(&poller, 1, 10000) == 1);
	CHECK(fi_cq_sread(cq, &entry, 1, NULL, 10000) == 1 && entry.len == 20);
	CHECK(fi_close(&av->fid) == -FI_EBUSY && fi_close(&cq->fid) == -FI_EBUSY);
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&av->fid));
}

/* Waits in vain, for 200 ms, and takes little of the core. */
static void wait_asleep(struct fid_cntr *cntr)
{
	struct timespec began, ended;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	CHECK(fi_cntr_wait(cntr, fi_cntr_read(cntr) + 1, 200) == -FI_ETIMEDOUT);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
	CHECK((ended.tv_sec - began.tv_sec) * 1e9 + ended.tv_nsec - began.tv_nsec < 80e6);
}

static void counters_sleep(void)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cntr *cntr;
	wait_asleep(sides[0].cntr);
	for (int i = 0; i < 3; i++) {
		attr.wait_obj = (int[]){ FI_WAIT_UNSPEC, FI_WAIT_YIELD, FI_WAIT_FD }[i];
		OK(fi_cntr_open(domain, &attr, &cntr, NULL));
		wait_asleep(cntr);
		OK(fi_cntr_add(cntr, 1));
		OK(fi_cntr_wait(cntr, 1, -1));
		OK(fi_close(&cntr->fid));
	}
	/* Who sleeps works as well: the answer needs this thread only. */
	uint64_t before = fi_cntr_read(sides[0].cntr);
	struct fid_mr *mr;
	OK(fi_mr_reg(domain, in, 8, FI_REMOTE_WRITE, 0, 56, 0, &mr, NULL));
	OK(fi_write(sides[0].ep, out, 8, NULL, sides[0].self, 0, 56, (void *)1));
	OK(fi_cntr_wait(sides[0].cntr, before + 1, 10000));
	CHECK(next(&sides[0], NULL) == 1);
	OK(fi_close(&mr->fid));
}

static void events(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_entry written = { .data = 5 }, got = { .data = 0 };
	struct fid_eq *eq;
	uint32_t event = 0;
	OK(fi_eq_open(fabric, &attr, &eq, NULL));
	CHECK(fi_eq_read(eq, &event, &got, sizeof got, 0) == -FI_EAGAIN);
	CHECK(fi_eq_sread(eq, &event, &got, sizeof got, 10, 0) == -FI_EAGAIN);
	CHECK(fi_eq_write(eq, FI_NOTIFY, &written, sizeof written, 0) == (ssize_t)sizeof written);
	CHECK(fi_eq_sread(eq, &event, &got, sizeof got, 1000, 0) == (ssize_t)sizeof got);
	CHECK(event == FI_NOTIFY && got.data == 5);
	OK(fi_close(&eq->fid));
}

/* Insertions that are told by events: of each that failed, and then of how many did not. */
static void inserted(void)
{
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fi_eq_err_entry failed = { .data = 99 };
	struct fi_eq_entry got = { .data = 99 };
	char addresses[3][16];
	size_t len = 16;
	uint32_t event;
	struct fid_eq *eq;
	struct fid_av *av;
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	for (int i = 0; i < 3; i++)
		OK(fi_av_lookup(sides[0].av, sides[0].peer, addresses[i], &len));
	CHECK(fi_av_insert(av, addresses, 3, NULL, 0, (void *)5) == -FI_ENOEQ);
	OK(fi_av_bind(av, &eq->fid, 0));
	/* Of no family. */
	memset(addresses[1], 0, 16);
	OK(fi_av_insert(av, addresses, 3, NULL, 0, (void *)5));
	CHECK(fi_eq_read(eq, &event, &got, sizeof got, 0) == -FI_EAVAIL);
	CHECK(fi_eq_sread(eq, &event, &got, sizeof got, 10, 0) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(eq, &failed, 0) == (ssize_t)sizeof failed);
	CHECK(failed.fid == &av->fid && failed.context == (void *)5 && failed.data == 1 && failed.err == FI_EINVAL);
	CHECK(fi_eq_readerr(eq, &failed, 0) == -FI_EAGAIN);
	CHECK(fi_eq_read(eq, &event, &got, sizeof got, 0) == (ssize_t)sizeof got);
	CHECK(event == FI_AV_COMPLETE && got.fid == &av->fid && got.context == (void *)5 && got.data == 2);
	CHECK(fi_eq_read(eq, &event, &got, sizeof got, 0) == -FI_EAGAIN);
	OK(fi_close(&av->fid));
	OK(fi_close(&eq->fid));
}

static void bound_ones_stay_open(void)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	struct fid_cntr *cntr;
	OK(fi_eq_open(fabric, &(struct fi_eq_attr){ .wait_obj = FI_WAIT_NONE }, &eq, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_av_bind(av, &eq->fid, 0));
	OK(fi_ep_bind(ep, &eq->fid, 0));
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	OK(fi_close(&av->fid));
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	OK(fi_close(&ep->fid));
	OK(fi_close(&eq->fid));
	OK(fi_cntr_open(domain, &cntr_attr, &cntr, NULL));
	OK(fi_mr_reg(domain, in, 8, FI_REMOTE_WRITE, 0, 55, 0, &mr, NULL));
	OK(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE));
	CHECK(fi_close(&cntr->fid) == -FI_EBUSY);
	OK(fi_close(&mr->fid));
	OK(fi_close(&cntr->fid));
}

static void refused_calls(void)
{
	struct fid_ep *ep;
	struct fid_poll *poll_set;
	struct fi_poll_attr poll_attr = { 0 };
	CHECK(fi_scalable_ep(domain, info, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_srx_context(domain, NULL, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_poll_open(domain, &poll_attr, &poll_set) == -FI_ENOSYS);
	CHECK(fi_connect(sides[0].ep, out, NULL, 0) == -FI_ENOSYS);
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr;
	struct fi_cq_attr cq_attr = { .flags = 1ull << 40 };
	struct fi_av_attr av_attr = { .flags = 1ull << 60 };
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL) == -FI_EBADFLAGS);
	CHECK(fi_av_open(domain, &av_attr, &av, NULL) == -FI_EBADFLAGS);
	CHECK(fi_mr_reg(domain, in, 8, FI_REMOTE_READ, 0, 7, 1ull << 60, &mr, NULL) == -FI_EBADFLAGS);
	CHECK(fi_mr_reg(domain, in, 8, FI_REMOTE_READ, 5, 7, 0, &mr, NULL) == -FI_EINVAL);
	struct iovec iov = { in, 8 };
	CHECK(fi_mr_regv(domain, &iov, 1, FI_REMOTE_READ, 5, 7, 0, &mr, NULL) == -FI_EINVAL);
	struct fi_mr_attr mr_attr = { .mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ, .offset = 5 };
	CHECK(fi_mr_regattr(domain, &mr_attr, 0, &mr) == -FI_EINVAL);
	CHECK(fi_close(&domain->fid) == -FI_EBUSY);
}

int main(void)
{
	refusals();
	sizes();
	sides_caps();
	open_all();
	if (failures)
		return 1;
	vectors();
	for (int i = 0; i < 3; i++) {
		size_t len = (size_t[]){ 30, 5000, LARGE }[i];
		tagged(len);
		peek(len);
		one_sided(len);
	}
	messages();
	atomics();
	waiting();
	counters_sleep();
	events();
	inserted();
	bound_ones_stay_open();
	refused_calls();
	close_all();
	printf("%d checks failed\n", failures);
	return failures != 0;
}
