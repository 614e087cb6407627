// SPDX-License-Identifier: GPL-2.0
/*
 * More queue pairs wait for memory on demand than the driver has fetches at a time.
 */
#include <sys/mman.h>
#include "ferroce_fault.h"
#include "ferroce_look.h"

/* The fetches of one process that the driver runs at a time, and queue pairs beyond that. */
#define FETCHES 64
#define WAITERS 8

/* Posts a WRITE of data in a page of a region. */
static void write_from(struct end *e, struct end *to, struct ibv_mr *mr, int page)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, e, to, IBV_WR_RDMA_WRITE, page, 0, 64, IBV_SEND_SIGNALED);
	sge.addr = (uintptr_t)mr->addr + page * PAGE;
	sge.lkey = mr->lkey;
	post_wr(e, &wr);
}

/* Waits until the send half waits for memory, according to the driver, and not for a retry. */
static void await_memory(struct end *e)
{
	wait_begin();
	for (;;) {
		look("rdma -dd resource show qp link r1/1 lqpn %u", e->qp->qp_num);
		if (!strncmp(behind("drv_sq_waits_for"), "memory ", 7))
			return;
		CHECK(strncmp(behind("drv_sq_waits_for"), "packet ", 7));
		wait_more_program("a wait for memory");
	}
}

/*
 * More queue pairs wait for memory than may have it fetched at a time. The others wait for their
 * turn: each fetch that ends lets the next one begin, even if some have given up their turn.
 */
static void test_turns(void)
{
	static struct end holders[FETCHES], a[WAITERS], b[WAITERS];
	size_t len = (FETCHES + WAITERS) * PAGE;
	unsigned char *area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, area, len, FULL_ACCESS | IBV_ACCESS_ON_DEMAND);
	uint64_t page;
	int fd;

	CHECK(area != MAP_FAILED && mr);
	for (int i = 0; i < WAITERS; i++)
		pair_open(&a[i], &b[i], IBV_QPT_RC, PAGE);
	fd = userfault(area, len);
	for (int i = 0; i < FETCHES; i++) {
		end_init(&holders[i], &r1, IBV_QPT_RC, 0);
		end_create(&holders[i]);
		end_to(&holders[i], &b[0], IBV_QPS_RTS);
		write_from(&holders[i], &b[0], mr, i);
		wanted(fd);
	}
	for (int i = 0; i < WAITERS; i++) {
		write_from(&a[i], &b[i], mr, FETCHES + i);
		await_memory(&a[i]);
	}
	/* The first in line gives up its turn; the third is destroyed before its turn. */
	end_modify(&a[0], IBV_QPS_ERR);
	expect(&a[0], FETCHES, IBV_WC_WR_FLUSH_ERR);
	pair_close(&a[2], &b[2]);
	page = (uintptr_t)area;
	for (int i = 1; i < WAITERS; i++) {
		if (i == 2)
			continue;
		bring(fd, page);
		page = wanted(fd);
		CHECK_EQ(page, (uintptr_t)area + (FETCHES + i) * PAGE);
	}
	bring(fd, page);
	for (int i = 1; i < WAITERS; i++)
		if (i != 2)
			expect(&a[i], FETCHES + i, IBV_WC_SUCCESS);
	for (int i = 0; i < WAITERS; i++)
		if (i != 2)
			pair_close(&a[i], &b[i]);
	for (int i = 0; i < FETCHES; i++)
		end_close(&holders[i]);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close(fd);
	munmap(area, len);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "fetches that wait for their turn", test_turns },
	};

	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
