// SPDX-License-Identifier: GPL-2.0
/*
 * Many queue pairs: the kernel memory that an idle one costs, and the time that the ten-thousandth
 * takes.
 *
 * Memory is counted in two ways, over so many queue pairs that per-CPU caches do not matter: by the
 * statistics of the allocators, and by the decrease of free memory.
 */
#include <time.h>
#include <unistd.h>
#include "ferroce_util.h"

/* Queue pairs whose memory is counted, and those that exist before. */
#define COUNTED 1000
#define EARLIER 200
/* The maximum, in bytes for each queue pair. */
#define MOST_BESIDES_RINGS (6 << 10)

#define MANY 10000
/* Times are the least of ROUNDS medians, each over BATCH queue pairs: the host is shared. */
#define ROUNDS 5
#define BATCH 200
#define MESSAGE 64

static struct ibv_qp *qps[MANY];
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char buf[MANY][2][MESSAGE];

static struct ibv_qp *create_qp(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	return ibv_create_qp(r1.pd, &init);
}

/* An end that is one of the queue pairs, with the usual attributes. */
static struct end end_of(struct ibv_qp *qp)
{
	struct end e;

	end_init(&e, &r1, IBV_QPT_RC, 0);
	e.qp = qp;
	return e;
}

static void create_all(int from, int to)
{
	for (int i = from; i < to; i++)
		CHECK(qps[i] = create_qp());
}

static void connect_all(int from, int to)
{
	for (int i = from; i < to; i++) {
		struct end e = end_of(qps[i]), peer = end_of(qps[i ^ 1]);

		end_to(&e, &peer, IBV_QPS_RTS);
	}
}

/* Memory. */

struct cache {
	char name[64];
	long bytes;
};

struct memory {
	/* Bytes of objects, and of areas of pages. */
	long slab, vmalloc, percpu;
	/* Free bytes, and those of the process. */
	long left, process;
	/* Bytes of mapped rings. */
	long rings;
	int n_caches;
	struct cache caches[1024];
};

static void read_slabs(struct memory *m)
{
	FILE *file = fopen("/proc/slabinfo", "r");
	unsigned long used, size;
	char line[512];

	CHECK(file);
	m->slab = 0;
	m->n_caches = 0;
	while (fgets(line, sizeof(line), file)) {
		struct cache *cache = &m->caches[m->n_caches];

		if (sscanf(line, "%63s %lu %*u %lu", cache->name, &used, &size) != 3)
			continue;
		CHECK(++m->n_caches < (int)ARRAY_LEN(m->caches));
		cache->bytes = used * size;
		m->slab += cache->bytes;
	}
	fclose(file);
}

static void read_memory(struct memory *m)
{
	char line[512];
	FILE *file;
	long kb;

	/* Memory that waits for RCU is freed every five seconds. */
	sleep(6);
	shell("sync && echo 3 >/proc/sys/vm/drop_caches");
	read_slabs(m);
	file = fopen("/proc/meminfo", "r");
	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemFree: %ld", &kb) == 1)
			m->left = kb << 10;
		else if (sscanf(line, "VmallocUsed: %ld", &kb) == 1)
			m->vmalloc = kb << 10;
		else if (sscanf(line, "Percpu: %ld", &kb) == 1)
			m->percpu = kb << 10;
	}
	fclose(file);
	file = fopen("/proc/self/status", "r");
	CHECK(file);
	m->process = 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %ld", &kb) == 1 || sscanf(line, "VmPTE: %ld", &kb) == 1)
			m->process += kb << 10;
	fclose(file);
	file = fopen("/proc/self/maps", "r");
	CHECK(file);
	m->rings = 0;
	while (fgets(line, sizeof(line), file)) {
		unsigned long from, to;

		if (strstr(line, "infiniband") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			m->rings += to - from;
	}
	fclose(file);
}

/* Prints the caches that have grown, for each queue pair. */
static void print_caches(const struct memory *before, const struct memory *after)
{
	for (int i = 0; i < after->n_caches; i++) {
		const struct cache *now = &after->caches[i];
		long was = 0;

		for (int j = 0; j < before->n_caches; j++)
			if (!strcmp(before->caches[j].name, now->name))
				was = before->caches[j].bytes;
		if (now->bytes - was >= 16 * COUNTED)
			printf("#   %-24s %6ld\n", now->name, (now->bytes - was) / COUNTED);
	}
}

/* Prints and checks the memory of the queue pairs that were created since `before`. */
static void judge(const char *what, const struct memory *before, const struct memory *after)
{
	long rings = (after->rings - before->rings) / COUNTED;
	long slab = (after->slab - before->slab) / COUNTED;
	long vmalloc = (after->vmalloc - before->vmalloc) / COUNTED;
	long percpu = (after->percpu - before->percpu) / COUNTED;
	long gone = (before->left - after->left + before->process - after->process) / COUNTED;
	/* Rings may be vmalloc areas, or not. */
	long besides = slab + percpu + (vmalloc > rings ? vmalloc - rings : 0);

	printf("# %s: %ld bytes besides rings of %ld, %ld in all; %ld are gone\n", what, besides,
	       rings, besides + rings, gone);
	printf("# %s: slab %ld, vmalloc %ld, percpu %ld\n", what, slab, vmalloc, percpu);
	print_caches(before, after);
	CHECK(rings > 0);
	if (is_debug_kernel()) {
		test_skip("a debug kernel needs memory of its own");
		return;
	}
	CHECK(besides <= MOST_BESIDES_RINGS);
	/*
	 * Pages that no allocator counts would be gone, too. There is no lower bound: memory of
	 * earlier programs is still being freed, or is reused.
	 */
	CHECK(gone < (besides + rings) / 2 * 3);
}

static void memory(void)
{
	static struct memory before, created, connected;
	int n = EARLIER + COUNTED;

	cq = ibv_create_cq(r1.ctx, 255, NULL, NULL, 0);
	CHECK(cq);
	/* Fill the caches of the allocators. */
	create_all(0, EARLIER);
	connect_all(0, EARLIER);
	read_memory(&before);
	create_all(EARLIER, n);
	read_memory(&created);
	connect_all(EARLIER, n);
	read_memory(&connected);
	for (int i = 0; i < n; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	judge("created", &before, &created);
	judge("connected", &before, &connected);
}

/* Time. */

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of a batch. */
static double median(const double *times)
{
	double sorted[BATCH];

	memcpy(sorted, times, sizeof(sorted));
	qsort(sorted, BATCH, sizeof(*sorted), compare);
	return sorted[BATCH / 2];
}

struct times {
	double create, destroy;
};

/* The time that it takes to create and to destroy a queue pair while there are `n` others. */
static struct times measure(int n)
{
	struct times least = { 1e9, 1e9 };
	double create[BATCH], destroy[BATCH], from;

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < BATCH; i++) {
			from = now_us();
			CHECK(qps[n + i] = create_qp());
			create[i] = now_us() - from;
		}
		for (int i = 0; i < BATCH; i++) {
			from = now_us();
			CHECK_EQ(ibv_destroy_qp(qps[n + i]), 0);
			destroy[i] = now_us() - from;
		}
		if (median(create) < least.create)
			least.create = median(create);
		if (median(destroy) < least.destroy)
			least.destroy = median(destroy);
	}
	printf("# %d queue pairs: creating one more takes %.0f us, destroying it %.0f us\n", n,
	       least.create, least.destroy);
	return least;
}

/* Each queue pair sends a message to its peer. */
static void exchange(int i)
{
	int to = i ^ 1;
	struct ibv_sge from_sge = { (uintptr_t)buf[i][0], MESSAGE, mr->lkey };
	struct ibv_sge to_sge = { (uintptr_t)buf[to][1], MESSAGE, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = to, .sg_list = &to_sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.wr_id = i,
		.sg_list = &from_sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;

	fill(buf[i][0], MESSAGE, i);
	CHECK_EQ(ibv_post_recv(qps[to], &recv, &bad_recv), 0);
	CHECK_EQ(ibv_post_send(qps[i], &send, &bad_send), 0);
	for (int n = 0; n < 2; n++) {
		struct ibv_wc wc = next_wc(cq);

		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, wc.opcode == IBV_WC_RECV ? to : i);
		CHECK_EQ(wc.qp_num, qps[wc.wr_id]->qp_num);
	}
	CHECK(!memcmp(buf[i][0], buf[to][1], MESSAGE));
}

static void many(void)
{
	int n = is_debug_kernel() ? 1000 : MANY;
	double began = now_us();
	struct times first, last;

	cq = ibv_create_cq(r1.ctx, 255, NULL, NULL, 0);
	mr = ibv_reg_mr(r1.pd, buf, sizeof(buf), FULL_ACCESS);
	CHECK(cq && mr);
	first = measure(0);
	create_all(0, n - BATCH);
	last = measure(n - BATCH);
	create_all(n - BATCH, n);
	printf("# created after %.1f s\n", (now_us() - began) / 1e6);
	connect_all(0, n);
	printf("# connected after %.1f s\n", (now_us() - began) / 1e6);
	for (int i = 0; i < n; i++)
		exchange(i);
	printf("# %d messages after %.1f s\n", n, (now_us() - began) / 1e6);
	for (int i = 0; i < n; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	printf("# destroyed after %.1f s\n", (now_us() - began) / 1e6);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	/* On a debug kernel, the times are mostly those of its checks. */
	if (!is_debug_kernel())
		CHECK(last.create <= 2 * first.create && last.destroy <= 2 * first.destroy);
}

static const struct test tests[] = {
	{ "memory of an idle queue pair", memory },
	{ "10,000 queue pairs", many },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
