/* Rules of libfabric's manual: what has to be refused, and what is counted and reported, over libfabric itself. Prints a
 * line per check that does not hold. */
#include "sides.h"
#include <sys/wait.h>
#include <unistd.h>

#define UNKNOWN (1ull << 40)

static void refused_flags(void)
{
	struct fi_info *hints = hints_of(), *found = NULL;
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE, .flags = UNKNOWN };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_NONE, .flags = UNKNOWN };
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	CHECK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE | UNKNOWN, hints, &found) == -FI_ENODATA);
	fi_freeinfo(hints);
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL) == -FI_EBADFLAGS);
	CHECK(fi_cntr_open(domain, &cntr_attr, &cntr, NULL) == -FI_EBADFLAGS);
	eq_attr.flags = FI_WRITE | FI_AFFINITY;
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	OK(fi_domain_bind(domain, &eq->fid, 0));
	/* Nobody would be told of registrations. */
	CHECK(fi_domain_bind(domain, &eq->fid, FI_REG_MR) == -FI_EBADFLAGS);
	CHECK(fi_av_bind(sides[0].av, &eq->fid, UNKNOWN) == -FI_EBADFLAGS);
	OK(fi_close(&eq->fid));
}

/* Buffers that are nowhere, or larger than a message. */
static void impossible_buffers(void)
{
	struct side *a = &sides[0];
	struct iovec wide[2] = { { out, SIZE_MAX - 5 }, { out, 100 } }, nowhere[2] = { { out, 1 }, { NULL, 1 } };
	struct fi_msg message = { .msg_iov = nowhere, .iov_count = 2, .addr = a->peer };
	uint64_t one = 1;
	CHECK(fi_send(a->ep, NULL, 10, NULL, a->peer, NULL) == -FI_EINVAL);
	CHECK(fi_inject(a->ep, NULL, 10, a->peer) == -FI_EINVAL);
	CHECK(fi_tsend(a->ep, NULL, LARGE, NULL, a->peer, 1, NULL) == -FI_EINVAL);
	CHECK(fi_sendmsg(a->ep, &message, 0) == -FI_EINVAL);
	CHECK(fi_recv(a->ep, NULL, 10, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EINVAL);
	CHECK(fi_write(a->ep, NULL, 10, NULL, a->peer, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_read(a->ep, NULL, 10, NULL, a->peer, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_atomic(a->ep, NULL, 1, NULL, a->peer, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_fetch_atomic(a->ep, &one, 1, NULL, NULL, NULL, a->peer, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_sendv(a->ep, wide, NULL, 2, a->peer, NULL) == -FI_EMSGSIZE);
	CHECK(fi_send(a->ep, out, info->ep_attr->max_msg_size + 1, NULL, a->peer, NULL) == -FI_EMSGSIZE);
}

/* An offer that was changed to what is not offered. */
static void impossible_endpoints(void)
{
	struct fi_info *wanted = fi_dupinfo(info), *found = NULL, *hints = hints_of();
	struct fid_ep *ep;
	wanted->caps |= FI_MULTICAST;
	CHECK(fi_endpoint(domain, wanted, &ep, NULL) == -FI_EINVAL);
	wanted->caps = info->caps;
	wanted->ep_attr->type = FI_EP_MSG;
	CHECK(fi_endpoint(domain, wanted, &ep, NULL) == -FI_EINVAL);
	wanted->ep_attr->type = FI_EP_RDM;
	wanted->tx_attr->inject_size++;
	CHECK(fi_endpoint(domain, wanted, &ep, NULL) == -FI_EINVAL);
	wanted->tx_attr->inject_size--;
	wanted->rx_attr->msg_order = ~0ull;
	CHECK(fi_endpoint(domain, wanted, &ep, NULL) == -FI_EINVAL);
	wanted->rx_attr->msg_order = FI_ORDER_SAS;
	OK(fi_endpoint(domain, wanted, &ep, NULL));
	OK(fi_close(&ep->fid));
	fi_freeinfo(wanted);
	hints->rx_attr->total_buffered_recv = info->rx_attr->total_buffered_recv + 1;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &found) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/* What a receive asked for is said when nothing came. */
static void tags_of_failures(void)
{
	struct side *a = &sides[0];
	struct fi_msg_tagged look = { .addr = FI_ADDR_UNSPEC, .tag = 77, .context = &look };
	OK(fi_trecvmsg(a->ep, &look, FI_PEEK));
	CHECK(next(a, NULL) == -FI_ENOMSG && error_entry.tag == 77 && error_entry.op_context == &look);
	OK(fi_trecv(a->ep, in, 8, NULL, FI_ADDR_UNSPEC, 78, 0, in));
	OK(fi_cancel(&a->ep->fid, in));
	CHECK(next(a, NULL) == -FI_ECANCELED && error_entry.tag == 78 && error_entry.op_context == in);
}

/* One of each kind. */
static void bindings(void)
{
	struct fi_av_attr av_attr = { .type = FI_AV_MAP };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_av *avs[2];
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *cntrs[2];
	struct fid_cq *cqs[2];
	struct fid_eq *eq;
	struct fid_ep *ep;
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	for (int i = 0; i < 2; i++) {
		OK(fi_av_open(domain, &av_attr, &avs[i], NULL));
		OK(fi_cntr_open(domain, &cntr_attr, &cntrs[i], NULL));
	}
	CHECK(fi_ep_bind(ep, &avs[0]->fid, FI_SEND) == -FI_EBADFLAGS);
	OK(fi_ep_bind(ep, &avs[0]->fid, 0));
	CHECK(fi_ep_bind(ep, &avs[1]->fid, 0) == -FI_EINVAL);
	OK(fi_ep_bind(ep, &cntrs[0]->fid, FI_WRITE | FI_SEND));
	OK(fi_ep_bind(ep, &cntrs[1]->fid, FI_READ));
	CHECK(fi_ep_bind(ep, &cntrs[1]->fid, FI_WRITE | FI_RECV) == -FI_EINVAL);
	CHECK(fi_ep_bind(ep, &eq->fid, FI_SEND) == -FI_EBADFLAGS);
	/* What is refused binds nothing. */
	OK(fi_cq_open(domain, &cq_attr, &cqs[0], NULL));
	OK(fi_cq_open(domain, &cq_attr, &cqs[1], NULL));
	OK(fi_ep_bind(ep, &cqs[0]->fid, FI_RECV));
	CHECK(fi_ep_bind(ep, &cqs[1]->fid, FI_TRANSMIT | FI_RECV) == -FI_EINVAL);
	OK(fi_close(&cqs[1]->fid));
	OK(fi_ep_bind(ep, &cqs[0]->fid, FI_TRANSMIT));
	OK(fi_close(&ep->fid));
	OK(fi_close(&cqs[0]->fid));
	for (int i = 0; i < 2; i++) {
		OK(fi_close(&avs[i]->fid));
		OK(fi_close(&cntrs[i]->fid));
	}
	OK(fi_close(&eq->fid));
}

/* An endpoint that speaks with itself, enabled, and a counter that is bound to nothing. */
static void open_alone(struct side *own, struct fid_domain *of, struct fi_info *as, enum fi_wait_obj counts_by)
{
	struct fi_av_attr av_attr = { .type = FI_AV_MAP };
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_cntr_attr cntr_attr = { .wait_obj = counts_by };
	char name[64];
	size_t len = sizeof name;
	OK(fi_endpoint(of, as, &own->ep, NULL));
	OK(fi_av_open(of, &av_attr, &own->av, NULL));
	OK(fi_cq_open(of, &cq_attr, &own->cq, NULL));
	OK(fi_cntr_open(of, &cntr_attr, &own->cntr, NULL));
	OK(fi_ep_bind(own->ep, &own->av->fid, 0));
	OK(fi_ep_bind(own->ep, &own->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
	OK(fi_enable(own->ep));
	OK(fi_getname(&own->ep->fid, name, &len));
	CHECK(fi_av_insert(own->av, name, 1, &own->self, 0, NULL) == 1);
}

/* Sandia OpenSHMEM asks the receiving side for all that its endpoint can do, binds counters to it when it is enabled, and
 * counts what it reads by them. */
static void late_counters(void)
{
	struct fi_info *as = fi_dupinfo(info);
	struct fi_cntr_attr slept_on = { .wait_obj = FI_WAIT_FD };
	char from[8] = "one two", to[8] = "";
	struct fid_cntr *waitable;
	struct fid_mr *mr;
	struct side own;
	as->caps = FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV;
	as->tx_attr->caps = FI_RMA | FI_ATOMIC;
	as->rx_attr->caps = as->caps;
	open_alone(&own, domain, as, FI_WAIT_NONE);
	OK(fi_cntr_open(domain, &slept_on, &waitable, NULL));
	OK(fi_ep_bind(own.ep, &own.cntr->fid, FI_READ));
	CHECK(fi_ep_bind(own.ep, &own.cntr->fid, FI_READ) == -FI_EINVAL);
	/* Nobody would work for who sleeps on that one. */
	CHECK(fi_ep_bind(own.ep, &waitable->fid, FI_WRITE) == -FI_EOPBADSTATE);
	OK(fi_mr_reg(domain, from, sizeof from, FI_REMOTE_READ, 0, 11, 0, &mr, NULL));
	OK(fi_read(own.ep, to, sizeof to, NULL, own.self, 0, 11, NULL));
	for (int i = 0; i < 1000 && fi_cntr_read(own.cntr) == 0; i++)
		usleep(1000);
	CHECK(fi_cntr_read(own.cntr) == 1 && strcmp(to, from) == 0);
	OK(fi_close(&mr->fid));
	close_side(&own);
	OK(fi_close(&waitable->fid));
	fi_freeinfo(as);
}

/* What an endpoint that works by itself writes to its own memory is there at once: Sandia OpenSHMEM clears the flag of a
 * barrier so, and sleeps until a counter says that it was written. */
static void writes_to_itself(void)
{
	enum { ROUNDS = 30 };
	struct fi_info *as = fi_dupinfo(info);
	struct fid_domain *working;
	struct fid_mr *mr;
	struct side own;
	char flag = 0;
	double began;
	as->domain_attr->data_progress = FI_PROGRESS_AUTO;
	OK(fi_domain(fabric, as, &working, NULL));
	open_alone(&own, working, as, FI_WAIT_UNSPEC);
	OK(fi_mr_reg(working, &flag, 1, FI_REMOTE_WRITE, 0, 12, 0, &mr, NULL));
	OK(fi_mr_bind(mr, &own.cntr->fid, FI_REMOTE_WRITE));
	began = now();
	for (char i = 1; i <= ROUNDS; i++) {
		OK(fi_inject_write(own.ep, &i, 1, own.self, 0, 12));
		OK(fi_cntr_wait(own.cntr, i, 5000));
		CHECK(flag == i);
	}
	/* It was 100 ms for each. */
	CHECK(now() - began < 1);
	OK(fi_close(&mr->fid));
	close_side(&own);
	OK(fi_close(&working->fid));
	fi_freeinfo(as);
}

static void registrations(void)
{
	struct iovec iov = { in, 8 };
	struct fi_info *hints = hints_of(), *found;
	struct fid_mr *mr;
	CHECK(fi_mr_reg(domain, in, 8, FI_REMOTE_READ | UNKNOWN, 0, 7, 0, &mr, NULL) == -FI_EINVAL);
	CHECK(fi_mr_regv(domain, &iov, 0, FI_REMOTE_READ, 0, 7, 0, &mr, NULL) == -FI_EINVAL);
	OK(fi_mr_reg(domain, in, 8, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7,
		FI_RMA_EVENT, &mr, NULL));
	OK(fi_close(&mr->fid));
	hints->domain_attr->mr_cnt = 1000000;
	OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &found));
	CHECK(found->domain_attr->mr_cnt >= 1000000);
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

static void vectors(void)
{
	char addresses[3][16];
	size_t len = 16;
	fi_addr_t numbers[3];
	int errors[3] = { -1, -1, -1 };
	for (int i = 0; i < 3; i++)
		OK(fi_av_lookup(sides[0].av, sides[0].peer, addresses[i], &len));
	/* Of no family. */
	memset(addresses[0], 0, 16);
	CHECK(fi_av_insert(sides[0].av, addresses, 3, numbers, FI_SYNC_ERR, errors) == 2);
	CHECK(errors[0] == FI_EINVAL && errors[1] == 0 && errors[2] == 0 && numbers[0] == FI_ADDR_NOTAVAIL);
	OK(fi_av_remove(sides[0].av, numbers + 1, 2, 0));
	CHECK(fi_av_insert(sides[0].av, addresses + 1, 1, numbers, FI_SYNC_ERR, NULL) == -FI_EINVAL);
}

/* Insertions are told of one by one, however many wait to be read. */
static void insertions(void)
{
	enum { MANY = 70000 };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fi_eq_entry got;
	char address[16];
	size_t len = 16, told = 0;
	uint32_t event;
	struct fid_eq *eq;
	struct fid_av *av;
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_av_bind(av, &eq->fid, 0));
	OK(fi_av_lookup(sides[0].av, sides[0].peer, address, &len));
	for (fi_addr_t i = 0; i < MANY; i++) {
		fi_addr_t number;
		OK(fi_av_insert(av, address, 1, &number, 0, NULL));
		OK(fi_av_remove(av, &number, 1, 0));
	}
	while (fi_eq_read(eq, &event, &got, sizeof got, 0) == (ssize_t)sizeof got)
		told++;
	CHECK(told == MANY);
	OK(fi_close(&av->fid));
	OK(fi_close(&eq->fid));
}

/* What one may sleep on is said, whatever was left open. */
static void wait_objects(void)
{
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	enum fi_wait_obj queue = FI_WAIT_NONE, events = FI_WAIT_NONE;
	struct fid_cq *cq;
	struct fid_eq *eq;
	int fd = -1;
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	OK(fi_control(&cq->fid, FI_GETWAITOBJ, &queue));
	OK(fi_control(&eq->fid, FI_GETWAITOBJ, &events));
	OK(fi_control(&cq->fid, FI_GETWAIT, &fd));
	CHECK(queue == FI_WAIT_FD && events == FI_WAIT_FD && fd >= 0);
	OK(fi_close(&cq->fid));
	OK(fi_close(&eq->fid));
}

/* A claimed message is one, and who looks posts no buffer. */
static void one_claim(void)
{
	struct iovec iov = { in, 100 };
	struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = (void *)7 };
	CHECK(fi_recvmsg(sides[1].ep, &message, FI_PEEK | FI_MULTI_RECV) == -FI_EBADFLAGS);
	CHECK(fi_recvmsg(sides[1].ep, &message, FI_CLAIM | FI_MULTI_RECV) == -FI_EBADFLAGS);
}

/* A message without bytes has a place in the buffer as well. */
static void empty_messages(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct iovec iov = { in, 250 };
	struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = (void *)6 };
	size_t least = 100;
	OK(fi_setopt(&b->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	OK(fi_recvmsg(b->ep, &message, FI_MULTI_RECV));
	for (int i = 0; i < 3; i++) {
		size_t len = (size_t[]){ 0, 60, 0 }[i];
		OK(fi_send(a->ep, out, len, NULL, a->peer, NULL));
		CHECK(next(a, NULL) == 1 && next(b, NULL) == 1 && entry.len == len);
		CHECK(entry.buf == in + (i < 2 ? 0 : 60) && !(entry.flags & FI_MULTI_RECV));
	}
	OK(fi_cancel(&b->ep->fid, (void *)6));
	CHECK(next(b, NULL) == -FI_ECANCELED && error_entry.flags & FI_MULTI_RECV);
}

/* Waits for the first side's operation, and checks what the second one's counters say. */
static void counted(struct fid_cntr *reads, struct fid_cntr *writes, struct fid_cntr *region, uint64_t read,
	uint64_t written, uint64_t modified)
{
	CHECK(next(&sides[0], NULL) == 1);
	CHECK(fi_cntr_read(reads) == read);
	CHECK(fi_cntr_read(writes) == written);
	CHECK(fi_cntr_read(region) == modified);
}

/* An endpoint's counters count what comes back as reads, a region's what changes it, an operation once. */
static void remote_counters(void)
{
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_MAP };
	struct fid_cntr *reads, *writes, *region;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	struct side *a = &sides[0];
	uint64_t there[4] = { 0 }, one = 1, result, two[2] = { 3, 4 };
	struct iovec iov = { two, 16 };
	struct fi_rma_iov stretches[2] = { { 16, 8, 90 }, { 24, 8, 90 } };
	struct fi_msg_rma message = { .msg_iov = &iov, .iov_count = 1, .rma_iov = stretches, .rma_iov_count = 2 };
	char name[64];
	size_t len = sizeof name;
	fi_addr_t to;
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &reads, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &writes, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &region, NULL));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(ep, &reads->fid, FI_REMOTE_READ));
	OK(fi_ep_bind(ep, &writes->fid, FI_REMOTE_WRITE));
	OK(fi_enable(ep));
	OK(fi_getname(&ep->fid, name, &len));
	CHECK(fi_av_insert(a->av, name, 1, &to, 0, NULL) == 1);
	OK(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 90, FI_RMA_EVENT, &mr, NULL));
	OK(fi_mr_bind(mr, &region->fid, FI_REMOTE_WRITE));
	OK(fi_mr_enable(mr));
	struct side target = { .ep = ep, .cq = cq }, other = sides[1];
	/* `next` lets the second side work. */
	sides[1] = target;
	message.addr = to;
	OK(fi_atomic(a->ep, &one, 1, NULL, to, 0, 90, FI_UINT64, FI_SUM, NULL));
	counted(reads, writes, region, 0, 1, 1);
	OK(fi_fetch_atomic(a->ep, &one, 1, NULL, &result, NULL, to, 0, 90, FI_UINT64, FI_SUM, NULL));
	counted(reads, writes, region, 1, 1, 2);
	OK(fi_compare_atomic(a->ep, &one, 1, NULL, &one, NULL, &result, NULL, to, 0, 90, FI_UINT64, FI_CSWAP, NULL));
	counted(reads, writes, region, 2, 1, 3);
	OK(fi_fetch_atomic(a->ep, NULL, 1, NULL, &result, NULL, to, 0, 90, FI_UINT64, FI_ATOMIC_READ, NULL));
	counted(reads, writes, region, 3, 1, 3);
	OK(fi_read(a->ep, &result, 8, NULL, to, 0, 90, NULL));
	counted(reads, writes, region, 4, 1, 3);
	OK(fi_writemsg(a->ep, &message, FI_COMPLETION));
	counted(reads, writes, region, 4, 2, 4);
	CHECK(there[2] == 3 && there[3] == 4);
	sides[1] = other;
	OK(fi_av_remove(a->av, &to, 1, 0));
	OK(fi_close(&mr->fid));
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&reads->fid));
	OK(fi_close(&writes->fid));
	OK(fi_close(&region->fid));
}

/* A forked child has a copy of an endpoint, which sends nothing and may be closed; the parent's goes on. */
static void forked_children(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_FD, .flags = FI_WRITE };
	struct pollfd readable = { .events = POLLIN };
	struct fid_cq *cq;
	struct fid_eq *eq;
	struct fid *asleep;
	uint32_t event;
	int status = -1;
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	OK(fi_control(&eq->fid, FI_GETWAIT, &readable.fd));
	CHECK(fi_eq_write(eq, FI_NOTIFY, "news", 4, 0) == 4);
	asleep = &cq->fid;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		failures = 0;
		CHECK(fi_send(a->ep, out, 8, NULL, a->peer, NULL) == -FI_EOPBADSTATE);
		CHECK(fi_tinject(a->ep, out, 8, a->peer, 1) == -FI_EOPBADSTATE);
		CHECK(fi_recv(a->ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EOPBADSTATE);
		CHECK(fi_write(a->ep, out, 8, NULL, a->peer, 0, 1, NULL) == -FI_EOPBADSTATE);
		CHECK(fi_cq_read(a->cq, &entry, 1) == -FI_EOPBADSTATE);
		CHECK(fi_cq_readerr(a->cq, &error_entry, 0) == -FI_EOPBADSTATE);
		CHECK(fi_cq_sread(cq, &entry, 1, NULL, -1) == -FI_EOPBADSTATE);
		CHECK(fi_cq_signal(cq) == -FI_EOPBADSTATE);
		CHECK(fi_cntr_wait(a->cntr, 1000, -1) == -FI_EOPBADSTATE);
		CHECK(fi_cntr_add(a->cntr, 1) == -FI_EOPBADSTATE);
		CHECK(fi_eq_sread(eq, &event, in, 4, -1, 0) == -FI_EOPBADSTATE);
		CHECK(fi_trywait(fabric, &asleep, 1) == -FI_EOPBADSTATE);
		OK(fi_close(&a->ep->fid));
		fflush(stdout);
		_exit(failures);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* What the child did not read is the parent's news still. */
	CHECK(poll(&readable, 1, 0) == 1 && fi_eq_read(eq, &event, in, 4, 0) == 4);
	OK(fi_close(&cq->fid));
	OK(fi_close(&eq->fid));
	OK(fi_recv(b->ep, in, 8, NULL, FI_ADDR_UNSPEC, &status));
	OK(fi_send(a->ep, out, 3, NULL, a->peer, NULL));
	CHECK(next(a, NULL) == 1 && next(b, NULL) == 1 && entry.len == 3 && entry.op_context == &status);
	CHECK(fi_cq_read(b->cq, &entry, 1) == -FI_EAGAIN);
}

int main(void)
{
	open_all();
	if (failures)
		return 1;
	refused_flags();
	impossible_buffers();
	impossible_endpoints();
	tags_of_failures();
	bindings();
	late_counters();
	writes_to_itself();
	registrations();
	vectors();
	insertions();
	wait_objects();
	one_claim();
	empty_messages();
	remote_counters();
	forked_children();
	close_all();
	printf("%d checks failed\n", failures);
	return failures != 0;
}
