/* What the programs that call the provider share: checks, and two endpoints of one process on loopback. */
#ifndef SIDES_H
#define SIDES_H
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failures;
#define CHECK(condition) do { if (!(condition)) { failures++; \
	printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); } } while (0)
#define OK(call) do { long long_ = (long)(call); if (long_) { failures++; \
	printf("%s:%d: %s is %ld (%s)\n", __FILE__, __LINE__, #call, long_, fi_strerror((int)-long_)); } } while (0)

#define LARGE (1 << 20)

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_av *av;
	fi_addr_t self, peer;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct side sides[2];
static char out[LARGE], in[LARGE + 64];
static struct fi_cq_tagged_entry entry;
static struct fi_cq_err_entry error_entry;

static struct fi_info *hints_of(void)
{
	struct fi_info *hints = fi_allocinfo();
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("denrei");
	hints->domain_attr->mr_mode = 0;
	return hints;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* The next completion of a side: 1, or the error number of a failure, negative; 0 after 10 s. */
static int next(struct side *side, fi_addr_t *source)
{
	fi_addr_t from = 0;
	double end = now() + 10;
	while (now() < end) {
		ssize_t got;
		fi_cq_read(sides[side == sides].cq, NULL, 0);
		got = fi_cq_readfrom(side->cq, &entry, 1, source ? source : &from);
		if (got == 1)
			return 1;
		if (got == -FI_EAVAIL) {
			memset(&error_entry, 0, sizeof error_entry);
			CHECK(fi_cq_readerr(side->cq, &error_entry, 0) == 1);
			return -error_entry.err;
		}
		CHECK(got == -FI_EAGAIN);
	}
	return 0;
}

static void open_all(void)
{
	struct fi_info *hints = hints_of();
	struct fi_av_attr av_attr = { .type = FI_AV_MAP };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	char names[2][64];
	OK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	CHECK(info->domain_attr->cq_data_size >= 4 && info->tx_attr->inject_size >= 64);
	CHECK((info->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) == (FI_LOCAL_COMM | FI_REMOTE_COMM));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	for (int i = 0; i < 2; i++) {
		struct side *side = &sides[i];
		size_t len = 0;
		OK(fi_endpoint(domain, info, &side->ep, NULL));
		CHECK(fi_enable(side->ep) == -FI_ENOAV);
		OK(fi_av_open(domain, &av_attr, &side->av, NULL));
		OK(fi_ep_bind(side->ep, &side->av->fid, 0));
		CHECK(fi_enable(side->ep) == -FI_ENOCQ);
		CHECK(fi_send(side->ep, out, 1, NULL, 0, NULL) == -FI_EOPBADSTATE);
		OK(fi_cq_open(domain, &cq_attr, &side->cq, NULL));
		OK(fi_cntr_open(domain, &cntr_attr, &side->cntr, NULL));
		OK(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
		OK(fi_ep_bind(side->ep, &side->cntr->fid, FI_READ | FI_WRITE));
		OK(fi_enable(side->ep));
		CHECK(fi_getname(&side->ep->fid, names[i], &len) == -FI_ETOOSMALL && len == 16);
		len = sizeof names[i];
		OK(fi_getname(&side->ep->fid, names[i], &len));
	}
	for (int i = 0; i < 2; i++) {
		CHECK(fi_av_insert(sides[i].av, names[i], 1, &sides[i].self, 0, NULL) == 1);
		CHECK(fi_av_insert(sides[i].av, names[!i], 1, &sides[i].peer, 0, NULL) == 1);
	}
	fi_freeinfo(hints);
}

static void close_side(struct side *side)
{
	OK(fi_close(&side->ep->fid));
	OK(fi_close(&side->cq->fid));
	OK(fi_close(&side->cntr->fid));
	OK(fi_close(&side->av->fid));
}

static void close_all(void)
{
	close_side(&sides[0]);
	close_side(&sides[1]);
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
}
#endif
