/* Every other form of the provider's calls, over libfabric itself: vectors, messages, injections, counters, regions, and
 * the refusals of what there is nothing behind. Prints a line per check that does not hold. */
#include "sides.h"
#include <rdma/fi_collective.h>

/* An operation of the first side is reported at both. */
static int both(void)
{
	return next(&sides[1], NULL) == 1 && next(&sides[0], NULL) == 1;
}

static void expect(uint64_t tag, int is_tagged)
{
	memset(in, 0, 100);
	if (is_tagged)
		OK(fi_trecv(sides[1].ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, tag, 0, NULL));
	else
		OK(fi_recv(sides[1].ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, NULL));
}

static void messages(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct iovec iov[2] = { { out, 40 }, { out + 40, 60 } }, into[2] = { { in, 10 }, { in + 10, 200 } };
	struct fi_msg message = { .msg_iov = iov, .iov_count = 2, .addr = a->peer, .data = 21 };
	for (int i = 0; i < 100; i++)
		out[i] = (char)(i * 5);
	expect(0, 0);
	OK(fi_sendv(a->ep, iov, NULL, 2, a->peer, NULL));
	CHECK(both() && !memcmp(in, out, 100));
	expect(0, 0);
	OK(fi_senddata(a->ep, out, 100, NULL, 20, a->peer, NULL));
	CHECK(next(b, NULL) == 1 && entry.data == 20 && entry.flags & FI_REMOTE_CQ_DATA && next(a, NULL) == 1);
	memset(in, 0, 100);
	OK(fi_recvv(b->ep, into, NULL, 2, FI_ADDR_UNSPEC, NULL));
	OK(fi_sendmsg(a->ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION));
	CHECK(next(b, NULL) == 1 && entry.data == 21 && entry.len == 100 && !memcmp(in, out, 100));
	CHECK(next(a, NULL) == 1);
	expect(30, 1);
	OK(fi_tsendv(a->ep, iov, NULL, 2, a->peer, 30, NULL));
	CHECK(both() && !memcmp(in, out, 100));
	expect(31, 1);
	OK(fi_tinject(a->ep, out, 100, a->peer, 31));
	CHECK(next(b, NULL) == 1 && entry.tag == 31 && !memcmp(in, out, 100));
	expect(32, 1);
	OK(fi_tinjectdata(a->ep, out, 100, 33, a->peer, 32));
	CHECK(next(b, NULL) == 1 && entry.data == 33 && !memcmp(in, out, 100));
	CHECK(fi_tinject(a->ep, out, LARGE, a->peer, 1) == -FI_EMSGSIZE);
}

static void regions(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct iovec iov[2] = { { out, 40 }, { out + 40, 60 } }, parts[2] = { { in, 50 }, { in + 50, 50 } };
	struct fi_mr_attr attr = { .mr_iov = parts, .iov_count = 2, .access = FI_REMOTE_READ | FI_REMOTE_WRITE,
		.requested_key = 52 };
	struct fi_rma_iov stretches[2] = { { 60, 40, 51 }, { 0, 60, 52 } };
	struct fi_msg_rma message = { .msg_iov = iov, .iov_count = 2, .addr = a->peer, .rma_iov = stretches,
		.rma_iov_count = 2, .data = 7 };
	struct fi_cntr_attr counting = { .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *written;
	struct fid_mr *vector, *other;
	size_t key_size = 8;
	uint64_t base;
	char back[100];
	OK(fi_cntr_open(domain, &counting, &written, NULL));
	OK(fi_mr_regv(domain, parts, 2, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 51, 0, &vector, NULL));
	OK(fi_mr_regattr(domain, &attr, 0, &other));
	CHECK(fi_mr_key(vector) == 51 && fi_mr_key(other) == 52 && fi_mr_desc(other) == NULL);
	OK(fi_mr_bind(other, &written->fid, FI_REMOTE_WRITE));
	CHECK(fi_mr_bind(other, &written->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_mr_bind(other, &domain->fid, 0) == -FI_EINVAL);
	OK(fi_mr_enable(other));
	OK(fi_mr_refresh(other, parts, 2, 0));
	CHECK(fi_mr_raw_attr(other, &base, (uint8_t *)back, &key_size, 0) == -FI_ENOSYS);
	CHECK(fi_mr_map_raw(domain, 0, (uint8_t *)back, 8, &base, 0) == -FI_ENOSYS);
	CHECK(fi_mr_unmap_key(domain, 52) == -FI_ENOSYS);
	memset(in, 0, 100);
	OK(fi_writev(a->ep, iov, NULL, 2, a->peer, 0, 51, NULL));
	CHECK(next(a, NULL) == 1 && !memcmp(in, out, 100));
	/* The first stretch ends the buffer, the second begins it. */
	OK(fi_writemsg(a->ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE));
	CHECK(next(b, NULL) == 1 && entry.data == 7 && entry.flags & FI_REMOTE_WRITE && next(a, NULL) == 1);
	CHECK(!memcmp(in + 60, out, 40) && !memcmp(in, out + 40, 60));
	CHECK(fi_cntr_read(written) == 1);
	memcpy(back, out, 100);
	memset(out, 0, 100);
	OK(fi_readmsg(a->ep, &message, FI_COMPLETION));
	CHECK(next(a, NULL) == 1 && entry.flags & FI_READ && !memcmp(out, back, 100));
	memset(out, 0, 100);
	OK(fi_readv(a->ep, iov, NULL, 2, a->peer, 0, 52, NULL));
	CHECK(next(a, NULL) == 1 && !memcmp(out, in, 100));
	OK(fi_inject_writedata(a->ep, "efgh", 4, 8, a->peer, 4, 52));
	CHECK(next(b, NULL) == 1 && entry.data == 8 && !memcmp(in + 4, "efgh", 4));
	OK(fi_close(&vector->fid));
	OK(fi_close(&other->fid));
	OK(fi_close(&written->fid));
}

static void atomics(void)
{
	struct side *a = &sides[0];
	uint64_t there[2] = { 1, 2 }, operand[2] = { 10, 20 }, result[2], compare[2];
	struct fi_ioc from[2] = { { operand, 1 }, { operand + 1, 1 } }, into[2] = { { result, 1 }, { result + 1, 1 } };
	struct fi_ioc with[2] = { { compare, 1 }, { compare + 1, 1 } };
	struct fi_rma_ioc target = { 0, 2, 61 };
	struct fi_msg_atomic message = { .msg_iov = from, .iov_count = 2, .addr = a->peer, .rma_iov = &target,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM };
	struct fid_mr *mr;
	size_t count = 0;
	uint64_t before = fi_cntr_read(a->cntr);
	OK(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 61, 0, &mr, NULL));
	OK(fi_fetch_atomicvalid(a->ep, FI_INT32, FI_SUM, &count));
	CHECK(count > 1);
	OK(fi_compare_atomicvalid(a->ep, FI_INT32, FI_CSWAP, &count));
	CHECK(fi_compare_atomicvalid(a->ep, FI_INT32, FI_SUM, &count) == -FI_EOPNOTSUPP);
	OK(fi_atomicv(a->ep, from, NULL, 2, a->peer, 0, 61, FI_UINT64, FI_SUM, NULL));
	CHECK(next(a, NULL) == 1 && there[0] == 11 && there[1] == 22);
	OK(fi_atomicmsg(a->ep, &message, FI_COMPLETION));
	CHECK(next(a, NULL) == 1 && there[0] == 21 && there[1] == 42);
	OK(fi_inject_atomic(a->ep, operand, 2, a->peer, 0, 61, FI_UINT64, FI_SUM));
	for (double end = now() + 10; fi_cntr_read(a->cntr) < before + 3 && now() < end;)
		fi_cq_read(sides[1].cq, NULL, 0);
	CHECK(there[0] == 31 && there[1] == 62);
	OK(fi_fetch_atomicv(a->ep, from, NULL, 2, into, NULL, 2, a->peer, 0, 61, FI_UINT64, FI_SUM, NULL));
	CHECK(next(a, NULL) == 1 && result[0] == 31 && result[1] == 62 && there[0] == 41 && there[1] == 82);
	OK(fi_fetch_atomicmsg(a->ep, &message, into, NULL, 2, FI_COMPLETION));
	CHECK(next(a, NULL) == 1 && result[0] == 41 && there[1] == 102);
	memcpy(compare, there, sizeof compare);
	OK(fi_compare_atomicv(a->ep, from, NULL, 2, with, NULL, 2, into, NULL, 2, a->peer, 0, 61, FI_UINT64, FI_CSWAP, NULL));
	CHECK(next(a, NULL) == 1 && result[0] == compare[0] && there[0] == 10 && there[1] == 20);
	message.op = FI_CSWAP;
	OK(fi_compare_atomicmsg(a->ep, &message, with, NULL, 2, into, NULL, 2, FI_COMPLETION));
	CHECK(next(a, NULL) == 1 && result[0] == 10 && there[0] == 10);
	OK(fi_close(&mr->fid));
}

/* What a key lets peers do: changes need write access, what is fetched or compared needs read access. */
static void access(void)
{
	struct side *a = &sides[0];
	uint64_t there[3] = { 1, 1, 1 }, one = 1, result;
	struct fid_mr *mrs[3];
	uint64_t modes[3] = { FI_REMOTE_READ, FI_REMOTE_WRITE, FI_REMOTE_READ | FI_REMOTE_WRITE };
	for (uint64_t key = 0; key < 3; key++) {
		int reads = key != 1, writes = key != 0;
		OK(fi_mr_reg(domain, there + key, 8, modes[key], 0, 70 + key, 0, &mrs[key], NULL));
		OK(fi_atomic(a->ep, &one, 1, NULL, a->peer, 0, 70 + key, FI_UINT64, FI_SUM, NULL));
		CHECK(next(a, NULL) == (writes ? 1 : -FI_ENOKEY));
		OK(fi_fetch_atomic(a->ep, NULL, 1, NULL, &result, NULL, a->peer, 0, 70 + key, FI_UINT64, FI_ATOMIC_READ, NULL));
		CHECK(next(a, NULL) == (reads ? 1 : -FI_ENOKEY));
		OK(fi_fetch_atomic(a->ep, &one, 1, NULL, &result, NULL, a->peer, 0, 70 + key, FI_UINT64, FI_SUM, NULL));
		CHECK(next(a, NULL) == (reads && writes ? 1 : -FI_ENOKEY));
		OK(fi_compare_atomic(a->ep, &one, 1, NULL, &one, NULL, &result, NULL, a->peer, 0, 70 + key, FI_UINT64,
			FI_CSWAP_NE, NULL));
		CHECK(next(a, NULL) == (reads && writes ? 1 : -FI_ENOKEY));
		OK(fi_write(a->ep, &one, 0, NULL, a->peer, 0, 70 + key, NULL));
		CHECK(next(a, NULL) == (writes ? 1 : -FI_ENOKEY));
		OK(fi_read(a->ep, &result, 8, NULL, a->peer, 0, 70 + key, NULL));
		CHECK(next(a, NULL) == (reads ? 1 : -FI_ENOKEY));
		OK(fi_close(&mrs[key]->fid));
	}
	CHECK(there[0] == 1 && there[1] == 2 && there[2] == 1);
}

/* A region from address zero on reaches as far as is said. */
static void from_zero(void)
{
	struct side *a = &sides[0];
	struct fid_mr *mr;
	for (int all = 0; all < 2; all++) {
		OK(fi_mr_reg(domain, NULL, all ? SIZE_MAX : 4096, FI_REMOTE_READ, 0, 80, 0, &mr, NULL));
		OK(fi_read(a->ep, out, 8, NULL, a->peer, (uintptr_t)in, 80, NULL));
		CHECK(next(a, NULL) == (all ? 1 : -FI_ENOKEY));
		OK(fi_close(&mr->fid));
	}
}

/* Who wants to know that a message has arrived is not told before. */
static void levels(void)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct side lone;
	struct iovec iov = { out, 8 };
	struct fi_msg_tagged message = { .msg_iov = &iov, .iov_count = 1 };
	setenv("FI_DENREI_FAILURE_TIMEOUT_MS", "300", 1);
	OK(fi_endpoint(domain, info, &lone.ep, NULL));
	unsetenv("FI_DENREI_FAILURE_TIMEOUT_MS");
	OK(fi_av_open(domain, &av_attr, &lone.av, NULL));
	OK(fi_cq_open(domain, &cq_attr, &lone.cq, NULL));
	OK(fi_ep_bind(lone.ep, &lone.av->fid, 0));
	OK(fi_ep_bind(lone.ep, &lone.cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(lone.ep));
	/* Nobody is there. */
	CHECK(fi_av_insertsvc(lone.av, "127.0.0.1", "9", &message.addr, 0, NULL) == 1);
	OK(fi_tsendmsg(lone.ep, &message, FI_COMPLETION | FI_INJECT_COMPLETE));
	CHECK(next(&lone, NULL) == 1);
	OK(fi_tsendmsg(lone.ep, &message, FI_COMPLETION | FI_TRANSMIT_COMPLETE));
	CHECK(next(&lone, NULL) == -FI_ETIMEDOUT);
	OK(fi_tsendmsg(lone.ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	CHECK(next(&lone, NULL) == -FI_ETIMEDOUT);
	OK(fi_tsendmsg(lone.ep, &message, FI_COMPLETION | FI_MATCH_COMPLETE));
	CHECK(next(&lone, NULL) == -FI_ETIMEDOUT);
	OK(fi_close(&lone.ep->fid));
	OK(fi_close(&lone.cq->fid));
	OK(fi_close(&lone.av->fid));
}

/* Nothing to compute with, and more parts than there may be. */
static void refused_counts(void)
{
	struct side *a = &sides[0];
	uint64_t word = 1;
	struct iovec iov[1000];
	struct fi_ioc none = { &word, 0 }, words[1000];
	struct fi_rma_iov stretches[1000];
	struct fi_rma_ioc targets[1000];
	struct fi_msg message = { .msg_iov = iov, .iov_count = 1000, .addr = a->peer };
	struct fi_msg_tagged tagged = { .msg_iov = iov, .iov_count = 1000, .addr = a->peer };
	struct fi_msg_rma rma = { .msg_iov = iov, .iov_count = 1000, .addr = a->peer, .rma_iov = stretches,
		.rma_iov_count = 1 };
	struct fi_msg_atomic atomic = { .msg_iov = words, .iov_count = 1000, .addr = a->peer, .rma_iov = targets,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM };
	for (int i = 0; i < 1000; i++) {
		iov[i] = (struct iovec){ in, 1 };
		words[i] = (struct fi_ioc){ &word, 1 };
		stretches[i] = (struct fi_rma_iov){ 0, 1, 1 };
		targets[i] = (struct fi_rma_ioc){ 0, 1, 1 };
	}
	CHECK(fi_atomic(a->ep, &word, 0, NULL, a->peer, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_atomicv(a->ep, &none, NULL, 1, a->peer, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_inject_atomic(a->ep, &word, 0, a->peer, 0, 1, FI_UINT64, FI_SUM) == -FI_EINVAL);
	CHECK(fi_fetch_atomic(a->ep, &word, 0, NULL, &word, NULL, a->peer, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_compare_atomic(a->ep, &word, 0, NULL, &word, NULL, &word, NULL, a->peer, 0, 1, FI_UINT64, FI_CSWAP,
		NULL) == -FI_EINVAL);
	CHECK(fi_sendv(a->ep, iov, NULL, 1000, a->peer, NULL) == -FI_EINVAL);
	CHECK(fi_recvv(a->ep, iov, NULL, 1000, a->peer, NULL) == -FI_EINVAL);
	CHECK(fi_sendmsg(a->ep, &message, 0) == -FI_EINVAL && fi_recvmsg(a->ep, &message, 0) == -FI_EINVAL);
	CHECK(fi_tsendmsg(a->ep, &tagged, 0) == -FI_EINVAL && fi_trecvmsg(a->ep, &tagged, 0) == -FI_EINVAL);
	CHECK(fi_writev(a->ep, iov, NULL, 1000, a->peer, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_readv(a->ep, iov, NULL, 1000, a->peer, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_writemsg(a->ep, &rma, 0) == -FI_EINVAL && fi_readmsg(a->ep, &rma, 0) == -FI_EINVAL);
	CHECK(fi_atomicv(a->ep, words, NULL, 1000, a->peer, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_atomicmsg(a->ep, &atomic, 0) == -FI_EINVAL);
	rma.iov_count = atomic.iov_count = 1;
	for (size_t count = 0; count <= 1000; count += 1000) {
		rma.rma_iov_count = atomic.rma_iov_count = count;
		CHECK(fi_writemsg(a->ep, &rma, 0) == -FI_EINVAL && fi_readmsg(a->ep, &rma, 0) == -FI_EINVAL);
		CHECK(fi_atomicmsg(a->ep, &atomic, 0) == -FI_EINVAL);
	}
}

/* Flags that nothing here keeps, or that nobody knows, are refused by every call that takes flags. */
static void refused_flags(void)
{
	struct fid_ep *ep = sides[0].ep;
	struct iovec iov = { in, 8 };
	struct fi_rma_iov stretch = { 0, 8, 1 };
	struct fi_ioc one = { in, 1 };
	struct fi_rma_ioc target = { 0, 1, 1 };
	struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = sides[0].peer };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = sides[0].peer };
	struct fi_msg_rma rma = { .msg_iov = &iov, .iov_count = 1, .addr = sides[0].peer, .rma_iov = &stretch,
		.rma_iov_count = 1 };
	struct fi_msg_atomic atomic = { .msg_iov = &one, .iov_count = 1, .addr = sides[0].peer, .rma_iov = &target,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM };
	uint64_t flags[] = { FI_FENCE, FI_TRIGGER, FI_COMMIT_COMPLETE, FI_MATCH_COMPLETE, FI_MULTICAST, 1ULL << 22,
		1ULL << 23, 1ULL << 62, 1ULL << 63 };
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		uint64_t flag = flags[i] | FI_COMPLETION, defaults = flag | FI_SEND;
		/* What is sent is matched; nothing else is. */
		CHECK(flags[i] == FI_MATCH_COMPLETE || fi_sendmsg(ep, &message, flag) == -FI_EBADFLAGS);
		CHECK(flags[i] == FI_MATCH_COMPLETE || fi_tsendmsg(ep, &tagged, flag) == -FI_EBADFLAGS);
		CHECK(fi_recvmsg(ep, &message, flag) == -FI_EBADFLAGS);
		CHECK(fi_trecvmsg(ep, &tagged, flag) == -FI_EBADFLAGS);
		CHECK(fi_writemsg(ep, &rma, flag) == -FI_EBADFLAGS);
		CHECK(fi_readmsg(ep, &rma, flag) == -FI_EBADFLAGS);
		atomic.op = FI_SUM;
		CHECK(fi_atomicmsg(ep, &atomic, flag) == -FI_EBADFLAGS);
		CHECK(fi_fetch_atomicmsg(ep, &atomic, &one, NULL, 1, flag) == -FI_EBADFLAGS);
		atomic.op = FI_CSWAP;
		CHECK(fi_compare_atomicmsg(ep, &atomic, &one, NULL, 1, &one, NULL, 1, flag) == -FI_EBADFLAGS);
		CHECK(fi_control(&ep->fid, FI_SETOPSFLAG, &defaults) == -FI_EBADFLAGS);
	}
	/* What is for the other direction, or for messages of another kind. */
	CHECK(fi_sendmsg(ep, &message, FI_MULTI_RECV) == -FI_EBADFLAGS);
	CHECK(fi_tsendmsg(ep, &tagged, FI_PEEK) == -FI_EBADFLAGS);
	CHECK(fi_recvmsg(ep, &message, FI_INJECT) == -FI_EBADFLAGS);
	CHECK(fi_trecvmsg(ep, &tagged, FI_MULTI_RECV) == -FI_EBADFLAGS);
	CHECK(fi_atomicmsg(ep, &atomic, FI_TAGGED) == -FI_EBADFLAGS);
}

static void counters_and_queues(void)
{
	struct fi_cntr_attr counting = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr waiting = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
	struct fi_cq_attr unknown = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_eq_attr events = { .wait_obj = FI_WAIT_NONE };
	struct fi_eq_err_entry event_error = { 0 };
	struct fid_cntr *cntr;
	struct fid_cq *cq;
	struct fid_eq *eq;
	fi_addr_t source;
	OK(fi_cntr_open(domain, &counting, &cntr, NULL));
	OK(fi_cntr_set(cntr, 5));
	OK(fi_cntr_add(cntr, 2));
	CHECK(fi_cntr_read(cntr) == 7);
	OK(fi_cntr_seterr(cntr, 3));
	OK(fi_cntr_adderr(cntr, 1));
	CHECK(fi_cntr_readerr(cntr) == 4);
	OK(fi_cntr_wait(cntr, 7, 0));
	CHECK(fi_cntr_wait(cntr, 8, 10) == -FI_ETIMEDOUT);
	OK(fi_close(&cntr->fid));
	CHECK(fi_cq_open(domain, &unknown, &cq, NULL) == -FI_ENOSYS);
	OK(fi_cq_open(domain, &waiting, &cq, NULL));
	OK(fi_cq_signal(cq));
	CHECK(fi_cq_sreadfrom(cq, &entry, 1, &source, NULL, 10) == -FI_EAGAIN);
	CHECK(fi_cq_readerr(cq, &error_entry, 0) == -FI_EAGAIN);
	CHECK(strlen(fi_cq_strerror(cq, FI_ECANCELED, NULL, NULL, 0)) > 0);
	CHECK(fi_cq_sread(sides[0].cq, &entry, 1, NULL, 10) == -FI_ENOSYS);
	OK(fi_close(&cq->fid));
	OK(fi_eq_open(fabric, &events, &eq, NULL));
	CHECK(fi_eq_readerr(eq, &event_error, 0) == -FI_EAGAIN);
	CHECK(strlen(fi_eq_strerror(eq, FI_ECANCELED, NULL, NULL, 0)) > 0);
	OK(fi_close(&eq->fid));
}

/* Of what comes between the readings of a counter's two counts its descriptor tells. */
static void counter_descriptors(void)
{
	struct fi_cntr_attr counting = { .wait_obj = FI_WAIT_FD };
	struct pollfd polled = { .events = POLLIN };
	struct fid_cntr *cntr;
	struct fid *waited;
	OK(fi_cntr_open(domain, &counting, &cntr, NULL));
	waited = &cntr->fid;
	OK(fi_control(waited, FI_GETWAIT, &polled.fd));
	CHECK(fi_cntr_read(cntr) == 0);
	OK(fi_cntr_add(cntr, 1));
	CHECK(fi_cntr_readerr(cntr) == 0);
	CHECK(fi_trywait(fabric, &waited, 1) == -FI_EAGAIN || poll(&polled, 1, 0) == 1);
	CHECK(fi_cntr_read(cntr) == 1);
	CHECK(fi_trywait(fabric, &waited, 1) == 0 && poll(&polled, 1, 0) == 0);
	OK(fi_cntr_adderr(cntr, 1));
	CHECK(fi_cntr_read(cntr) == 1);
	CHECK(fi_trywait(fabric, &waited, 1) == -FI_EAGAIN || poll(&polled, 1, 0) == 1);
	CHECK(fi_cntr_readerr(cntr) == 1);
	CHECK(fi_trywait(fabric, &waited, 1) == 0 && poll(&polled, 1, 0) == 0);
	OK(fi_close(waited));
}

/* Where no thread works, looks at any counter where something will be counted let it happen: at one that is a region's
 * alone, and asking for a threshold without waiting. */
static void counters_that_no_thread_works_for(void)
{
	struct side *a = &sides[0];
	struct fi_cntr_attr counting = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *written;
	struct fid_mr *region;
	double end = now() + 5;
	int status;
	setenv("FI_DENREI_PROGRESS_THREAD", "0", 1);
	open_all();
	OK(fi_cntr_open(domain, &counting, &written, NULL));
	OK(fi_mr_reg(domain, in, 100, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 60, 0, &region, NULL));
	OK(fi_mr_bind(region, &written->fid, FI_REMOTE_WRITE));
	OK(fi_inject_write(a->ep, "abcd", 4, a->peer, 0, 60));
	OK(fi_cntr_wait(written, 1, 5000));
	/* Both of its own: nobody else is asked. */
	OK(fi_read(a->ep, out, 4, NULL, a->self, 0, 60, NULL));
	do
		status = fi_cntr_wait(a->cntr, 2, 0);
	while (status == -FI_ETIMEDOUT && now() < end);
	CHECK(status == 0 && !memcmp(out, "abcd", 4));
	OK(fi_close(&region->fid));
	OK(fi_close(&written->fid));
	close_all();
	unsetenv("FI_DENREI_PROGRESS_THREAD");
}

static void refused_calls(void)
{
	struct fid_ep *ep = sides[0].ep, *other;
	struct fid_pep *passive;
	struct fid_wait *wait_set;
	struct fid_stx *shared;
	struct fid_mc *group;
	struct fid_av_set *set;
	struct fi_wait_attr wait_attr = { 0 };
	struct fi_av_set_attr set_attr = { 0 };
	size_t len = sizeof out;
	CHECK(fi_passive_ep(fabric, info, &passive, NULL) == -FI_ENOSYS);
	CHECK(fi_wait_open(fabric, &wait_attr, &wait_set) == -FI_ENOSYS);
	CHECK(fi_stx_context(domain, NULL, &shared, NULL) == -FI_ENOSYS);
	CHECK(fi_tx_context(ep, 0, NULL, &other, NULL) == -FI_ENOSYS);
	CHECK(fi_rx_context(ep, 0, NULL, &other, NULL) == -FI_ENOSYS);
	CHECK(fi_ep_alias(ep, &other, 0) == -FI_ENOSYS);
	CHECK(fi_setname(&ep->fid, out, 16) == -FI_ENOSYS);
	CHECK(fi_getpeer(ep, out, &len) == -FI_ENOSYS);
	CHECK(fi_accept(ep, NULL, 0) == -FI_ENOSYS);
	CHECK(fi_shutdown(ep, 0) == -FI_ENOSYS);
	CHECK(fi_join(ep, out, 0, &group, NULL) == -FI_ENOSYS);
	CHECK(fi_av_set(sides[0].av, &set_attr, &set, NULL) == -FI_ENOSYS);
	CHECK(fi_query_collective(domain, FI_BARRIER, NULL, 0) == -FI_ENOSYS);
	CHECK(fi_barrier(ep, 0, NULL) == -FI_ENOSYS && fi_barrier2(ep, 0, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_broadcast(ep, out, 1, NULL, 0, 0, FI_UINT8, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_alltoall(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_allreduce(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, FI_SUM, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_allgather(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_reduce_scatter(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, FI_SUM, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_reduce(ep, out, 1, NULL, in, NULL, 0, 0, FI_UINT8, FI_SUM, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_scatter(ep, out, 1, NULL, in, NULL, 0, 0, FI_UINT8, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_gather(ep, out, 1, NULL, in, NULL, 0, 0, FI_UINT8, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_endpoint2(domain, info, &other, FI_MORE, NULL) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &sides[0].cq->fid, FI_SEND) == -FI_EOPBADSTATE);
}

int main(void)
{
	open_all();
	if (failures)
		return 1;
	messages();
	regions();
	atomics();
	counters_and_queues();
	counter_descriptors();
	access();
	from_zero();
	levels();
	refused_counts();
	refused_flags();
	refused_calls();
	close_all();
	counters_that_no_thread_works_for();
	printf("%d checks failed\n", failures);
	return failures != 0;
}
