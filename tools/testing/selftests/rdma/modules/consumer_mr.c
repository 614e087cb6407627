// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of kernel consumers: keys, regions of as many pages as there may be, registrations that
 * are refused, lists that begin and end anywhere, atomic operations, and the key for all memory.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "consumer.h"

#define ALL_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE | \
		    IB_ACCESS_REMOTE_ATOMIC)

/* Registers the memory that is mapped to a region. */
static int register_mr(struct side *s, struct ib_mr *mr, u32 key, int access,
		       enum ib_wc_status status)
{
	struct ib_reg_wr wr = {
		.wr.opcode = IB_WR_REG_MR,
		.mr = mr,
		.key = key,
		.access = access,
	};

	int err = TRY(ib_post_send(s->qp, &wr.wr, NULL));

	return err ?: status == IB_WC_SUCCESS ? finish_op(s, IB_WC_REG_MR) : finish(s, status);
}

/* Makes the pages one region, of which the first byte has the address 0x10000. */
static int register_pages(struct side *s)
{
	/* One entry more than the region can have is left out. */
	int err = EXPECT(ib_map_mr_sg(s->mr, s->sgl, PAGES + 1, NULL, PAGE_SIZE) == PAGES) ?:
		  EXPECT(s->mr->length == LEN);

	if (err)
		return err;
	ib_update_fast_reg_key(s->mr, s->mr->rkey + 1);
	s->mr->iova = 0x10000;
	return register_mr(s, s->mr, s->mr->rkey, ALL_ACCESS, IB_WC_SUCCESS);
}

static int invalidate(struct side *s, u32 rkey)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = rkey };

	return TRY(ib_post_send(s->qp, &wr, NULL)) ?: finish_op(s, IB_WC_LOCAL_INV);
}

/* The intended value of a byte of a region. */
static u8 pattern(u64 at)
{
	return at * 31 + at / PAGE_SIZE;
}

/* The most pages of a region; more than the device advertises, for SMC. */
#define MAX_PAGES BIT(17)

static void fill(struct side *s)
{
	for (u64 at = 0; at < LEN; at++)
		*byte(s, at) = pattern(at);
}

static bool has_pattern(struct side *s)
{
	for (u64 at = 0; at < LEN; at++)
		if (*byte(s, at) != pattern(at))
			return false;
	return true;
}

int make_regions(void)
{
	const int on_demand = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_ON_DEMAND;

	return EXPECT(a.dev->attrs.max_fast_reg_page_list_len == PAGES) ?:
	       EXPECT(ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, MAX_PAGES + 1) == ERR_PTR(-EINVAL)) ?:
	       EXPECT(ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, 0) == ERR_PTR(-EINVAL)) ?:
	       EXPECT(ib_reg_user_mr(a.pd, 0, PAGE_SIZE, 0, on_demand) == ERR_PTR(-EOPNOTSUPP)) ?:
	       TRY_PTR(a.mr = ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, PAGES)) ?:
	       TRY_PTR(b.mr = ib_alloc_mr(b.pd, IB_MR_TYPE_MEM_REG, PAGES)) ?:
	       register_pages(&a) ?: register_pages(&b);
}

static int test_pages(void)
{
	int err;

	fill(&a);
	err = transfer(IB_WR_RDMA_WRITE, 0, LEN, IB_WC_SUCCESS) ?: EXPECT(has_pattern(&b));
	if (err)
		return err;
	for (u64 at = 0; at < LEN; at++)
		*byte(&a, at) = 0;
	/* The page that was left out is not part of the region. */
	return transfer(IB_WR_RDMA_READ, 0, LEN, IB_WC_SUCCESS) ?: EXPECT(has_pattern(&a)) ?:
	       EXPECT(!memchr_inv(page_address(b.pages[0]), 0, PAGE_SIZE));
}

static int atomic(enum ib_wr_opcode op, u64 at, u64 compare_add, u64 swap, u64 found)
{
	struct ib_sge sge = in_region(&a, 0, 8);
	struct ib_atomic_wr wr = {
		.wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = b.mr->iova + at,
		.compare_add = compare_add,
		.swap = swap,
		.rkey = b.mr->rkey,
	};

	return TRY(ib_post_send(a.qp, &wr.wr, NULL)) ?:
	       finish_op(&a, op == IB_WR_ATOMIC_CMP_AND_SWP ? IB_WC_COMP_SWAP :
							      IB_WC_FETCH_ADD) ?:
	       EXPECT(*(u64 *)byte(&a, 0) == found);
}

/* In the last word of a page and the first of the next, which are not adjacent in memory. */
static int test_atomics(void)
{
	int err;

	for (u64 at = 5 * PAGE_SIZE - 8; at <= 5 * PAGE_SIZE; at += 8) {
		u64 *word = (u64 *)byte(&b, at);

		*word = U64_MAX;
		err = atomic(IB_WR_ATOMIC_FETCH_AND_ADD, at, 8, 0, U64_MAX) ?: EXPECT(*word == 7) ?:
		      atomic(IB_WR_ATOMIC_CMP_AND_SWP, at, 8, 100, 7) ?: EXPECT(*word == 7) ?:
		      atomic(IB_WR_ATOMIC_CMP_AND_SWP, at, 7, 0x1122334455667788, 7) ?:
		      EXPECT(*word == 0x1122334455667788);
		if (err)
			return err;
	}
	return 0;
}

/*
 * A key that its owner has invalidated gives no access. Invalidating it again is no error: the peer
 * may do so at the same time.
 */
static int test_invalidate(void)
{
	*byte(&a, 0) = 0xaa;
	*byte(&b, 0) = 0xbb;
	return invalidate(&b, b.mr->rkey) ?: invalidate(&b, b.mr->rkey) ?:
	       transfer(IB_WR_RDMA_WRITE, 0, 1, IB_WC_REM_ACCESS_ERR) ?:
	       EXPECT(*byte(&b, 0) == 0xbb);
}

/* Keys of regions that are not mapped yet: random but for one bit, which means "no window". */
static int test_keys(void)
{
	enum { COUNT = 200, BITS = 31 };
	static struct ib_mr *mrs[COUNT];
	int err = 0, differ, count;

	for (count = 0; count < COUNT && !err; count++)
		err = TRY_PTR(mrs[count] = ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, 1));
	for (int bit = 0; bit < BITS && !err; bit++) {
		differ = 0;
		for (int i = 1; i < COUNT; i++)
			differ += (mrs[i]->rkey ^ mrs[i - 1]->rkey) >> bit & 1;
		err = EXPECT(differ > COUNT / 4 && differ < COUNT * 3 / 4);
		if (err)
			pr_err("ferroce_consumer: bit %d differs %d times\n", bit, differ);
	}
	while (count--)
		if (!IS_ERR(mrs[count]))
			ib_dereg_mr(mrs[count]);
	return err;
}

/* Writes a byte to the first one of a region of b, by a key. */
static int write_first(struct ib_mr *mr, u32 key, enum ib_wc_status status)
{
	return rdma(a.qp, IB_WR_RDMA_WRITE, in_region(&a, 1, 1), mr->iova, key, status);
}

/* A registration that must be refused. It moves the queue pair to ERR. */
static int refuse(struct ib_mr *mr, u32 key, int access)
{
	return register_mr(&b, mr, key, access, IB_WC_MW_BIND_ERR) ?: reconnect();
}

/* A key that is not of the region is refused when the request is posted. */
static int refuse_key(struct ib_mr *mr, u32 key)
{
	struct ib_reg_wr wr = { .wr.opcode = IB_WR_REG_MR, .mr = mr, .key = key };

	return EXPECT(ib_post_send(b.qp, &wr.wr, NULL) == -EINVAL);
}

/* The refusals of a mapped region that is not registered. */
static int refuse_mapped(struct ib_mr *mr)
{
	static const int rights[] = { IB_ACCESS_MW_BIND, IB_ZERO_BASED, IB_ACCESS_ON_DEMAND };
	u64 iova = mr->iova;
	int err = 0;

	for (int i = 0; i < ARRAY_SIZE(rights) && !err; i++)
		err = refuse(mr, mr->rkey, IB_ACCESS_LOCAL_WRITE | rights[i]);
	/* The address of the first byte must have the same offset in a page as the memory. */
	mr->iova = iova + 8;
	err = err ?: refuse(mr, mr->rkey, IB_ACCESS_LOCAL_WRITE);
	/* The last byte must have an address, too. */
	mr->iova = -PAGE_SIZE;
	err = err ?: refuse(mr, mr->rkey, IB_ACCESS_LOCAL_WRITE);
	mr->iova = iova;
	return err;
}

/*
 * Registrations that are refused complete with an error and leave the region as it was: the memory
 * mapped to it can still be registered, and the key of an earlier registration stays valid.
 */
static int test_refusals(void)
{
	struct ib_mr *mr = NULL, *second = NULL, *other = NULL;
	struct ib_pd *pd = NULL;
	u32 key;
	int err;

	err = TRY_PTR(mr = ib_alloc_mr(b.pd, IB_MR_TYPE_MEM_REG, 4)) ?:
	      TRY_PTR(second = ib_alloc_mr(b.pd, IB_MR_TYPE_MEM_REG, 4)) ?:
	      TRY_PTR(pd = ib_alloc_pd(b.dev, 0)) ?:
	      TRY_PTR(other = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 4));
	if (err)
		goto out;
	key = mr->rkey;
	/* Nothing is mapped yet. */
	err = refuse(mr, key, ALL_ACCESS) ?:
	      EXPECT(ib_map_mr_sg(mr, b.sgl, 4, NULL, PAGE_SIZE) == 4) ?:
	      EXPECT(ib_map_mr_sg(second, b.sgl, 4, NULL, PAGE_SIZE) == 4) ?:
	      EXPECT(ib_map_mr_sg(other, b.sgl, 4, NULL, PAGE_SIZE) == 4) ?:
	      /* The key of another region, and a region of another protection domain. */
	      refuse_key(mr, second->rkey) ?: refuse_key(mr, other->rkey) ?:
	      refuse(other, other->rkey, ALL_ACCESS) ?:
	      refuse_mapped(mr) ?:
	      write_first(mr, key, IB_WC_REM_ACCESS_ERR) ?: reconnect() ?:
	      /* Hints are no rights. */
	      register_mr(&b, mr, key, ALL_ACCESS | IB_ACCESS_RELAXED_ORDERING, IB_WC_SUCCESS) ?:
	      /* It must be invalidated first. */
	      refuse(mr, key, ALL_ACCESS) ?:
	      refuse(mr, ib_inc_rkey(key), ALL_ACCESS) ?:
	      write_first(mr, ib_inc_rkey(key), IB_WC_REM_ACCESS_ERR) ?: reconnect();
	if (err)
		goto out;
	*byte(&a, 1) = 0x5a;
	*byte(&b, 0) = 0;
	err = write_first(mr, key, IB_WC_SUCCESS) ?: EXPECT(*byte(&b, 0) == 0x5a) ?:
	      invalidate(&b, key) ?:
	      register_mr(&b, mr, ib_inc_rkey(key), IB_ACCESS_REMOTE_READ, IB_WC_SUCCESS) ?:
	      /* The new registration has neither the old key nor the old rights. */
	      write_first(mr, key, IB_WC_REM_ACCESS_ERR) ?: reconnect() ?:
	      write_first(mr, ib_inc_rkey(key), IB_WC_REM_ACCESS_ERR) ?: reconnect() ?:
	      rdma(a.qp, IB_WR_RDMA_READ, in_region(&a, 2, 1), mr->iova, ib_inc_rkey(key),
		   IB_WC_SUCCESS) ?: EXPECT(*byte(&a, 2) == 0x5a) ?:
	      invalidate(&b, ib_inc_rkey(key)) ?:
	      /* Memory that was registered before is not registered in place of other memory. */
	      EXPECT(ib_map_mr_sg(mr, b.sgl, 0, NULL, PAGE_SIZE) == -EINVAL) ?:
	      refuse(mr, key, ALL_ACCESS) ?:
	      EXPECT(ib_map_mr_sg(mr, b.sgl, 4, NULL, PAGE_SIZE) == 4) ?:
	      register_mr(&b, mr, key, ALL_ACCESS, IB_WC_SUCCESS) ?: invalidate(&b, key) ?:
	      /* The same memory can be registered again. */
	      register_mr(&b, mr, key, ALL_ACCESS, IB_WC_SUCCESS) ?:
	      write_first(mr, key, IB_WC_SUCCESS);
out:
	if (!IS_ERR_OR_NULL(other))
		ib_dereg_mr(other);
	if (!IS_ERR_OR_NULL(pd))
		ib_dealloc_pd(pd);
	if (!IS_ERR_OR_NULL(second))
		ib_dereg_mr(second);
	if (!IS_ERR_OR_NULL(mr))
		ib_dereg_mr(mr);
	return err;
}

/* Contiguous memory, of which lists name parts. */
#define BLOCK_ORDER 6
#define BLOCK (PAGE_SIZE << BLOCK_ORDER)

/* The most pages of the region that lists are mapped to. */
#define LIST_PAGES 8

/* A list, and the expected result of ib_map_mr_sg(). */
struct list {
	u32 page_size;
	/* Of the first byte in the first entry. */
	u32 offset;
	u32 count;
	/* The entries: offset in the block and length. */
	struct { u32 at, len; } entries[4];
	/* The number of entries that fit. */
	u32 mapped;
	/* If an entry fits in part, the offset to continue from. */
	u32 next;
	u32 len;
};

#define P ((u32)PAGE_SIZE)

static const struct list lists[] = {
	/* Several pages in an entry. */
	{ P, 0, 2, { { 0, 3 * P }, { 5 * P, 2 * P } }, 2, 0, 5 * P },
	/* Only the first entry begins, and only the last one ends, within a page. */
	{ P, 0, 3, { { 100, P - 100 }, { 4 * P, P }, { 2 * P, 200 } }, 3, 0, 2 * P + 100 },
	/* An offset in the first page of the first entry, and in the second one. */
	{ P, 100, 1, { { P, 2 * P } }, 1, 0, 2 * P - 100 },
	{ P, P + 7, 2, { { 9, 3 * P - 9 }, { 7 * P, P } }, 2, 0, 3 * P - 16 },
	/* Entries within a page that continue each other. */
	{ P, 0, 3, { { 50, 1000 }, { 1050, P }, { P + 1050, 2 * P } }, 3, 0, 3 * P + 1000 },
	/* The list ends before a gap: behind the second entry, or before it. */
	{ P, 0, 3, { { 0, P }, { 2 * P, 100 }, { 3 * P, P } }, 2, 0, P + 100 },
	{ P, 0, 2, { { 0, P }, { 2 * P + 8, P } }, 1, 0, P },
	/* Two pages as one, and 64 KiB as one; the first and the last one only in part. */
	{ 2 * P, 0, 3, { { P, P }, { 6 * P, 4 * P }, { 4 * P, P } }, 3, 0, 6 * P },
	{ SZ_64K, 300, 2, { { SZ_64K + P, SZ_64K - P }, { 3 * SZ_64K, P + 1 } }, 2, 0,
	  SZ_64K - 299 },
	/*
	 * An entry that is too long. ib_sg_to_pages() leaves out the last page that fits, too. The
	 * rest is mapped from the offset that it returns.
	 */
	{ P, 0, 1, { { 0, 12 * P } }, 0, (LIST_PAGES - 1) * P, (LIST_PAGES - 1) * P },
	{ P, (LIST_PAGES - 1) * P, 1, { { 0, 12 * P } }, 1, 0, (13 - LIST_PAGES) * P },
};

#undef P

/* Writes into the bytes of the list, and compares the block with its expected contents. */
static int write_list(struct ib_mr *mr, const struct list *list, u8 *block, u8 *shadow)
{
	u32 pos = 0;

	memset(block, 0xee, BLOCK);
	memset(shadow, 0xee, BLOCK);
	for (int i = 0; i < list->count; i++)
		for (u32 j = i ? 0 : list->offset; j < list->entries[i].len; j++)
			if (pos < list->len)
				shadow[list->entries[i].at + j] = pattern(pos++);
	return rdma(a.qp, IB_WR_RDMA_WRITE, in_region(&a, 0, list->len), mr->iova, mr->rkey,
		    IB_WC_SUCCESS) ?:
	       /* Not a byte more. */
	       rdma(a.qp, IB_WR_RDMA_WRITE, in_region(&a, 0, 1), mr->iova + list->len, mr->rkey,
		    IB_WC_REM_ACCESS_ERR) ?:
	       reconnect() ?: EXPECT(!memcmp(block, shadow, BLOCK));
}

static int map_list(struct ib_mr *mr, const struct list *list, u8 *block, u8 *shadow)
{
	struct scatterlist sgl[ARRAY_SIZE(list->entries)];
	u32 offset = list->offset, count = list->count;
	int err;

	sg_init_table(sgl, count);
	for (int i = 0; i < count; i++)
		sg_set_buf(&sgl[i], block + list->entries[i].at, list->entries[i].len);
	err = EXPECT(ib_dma_map_sg(b.dev, sgl, count, DMA_BIDIRECTIONAL) == count);
	if (err)
		return err;
	err = EXPECT(ib_map_mr_sg(mr, sgl, count, &offset, list->page_size) == list->mapped) ?:
	      EXPECT(mr->length == list->len) ?: EXPECT(offset == list->next) ?:
	      EXPECT(mr->iova == sg_dma_address(sgl) + list->offset);
	if (!err) {
		ib_update_fast_reg_key(mr, mr->rkey + 1);
		err = register_mr(&b, mr, mr->rkey, ALL_ACCESS, IB_WC_SUCCESS) ?:
		      write_list(mr, list, block, shadow) ?: invalidate(&b, mr->rkey);
	}
	ib_dma_unmap_sg(b.dev, sgl, count, DMA_BIDIRECTIONAL);
	return err;
}

/* Arguments that must be refused. */
static int refuse_lists(struct ib_mr *mr)
{
	static const u32 sizes[] = { 0, PAGE_SIZE + 1, 3 * PAGE_SIZE };
	u32 offset = PAGE_SIZE + 1;
	int err = 0;

	for (int i = 0; i < ARRAY_SIZE(sizes) && !err; i++)
		err = EXPECT(ib_map_mr_sg(mr, b.sgl, 1, NULL, sizes[i]) == -EINVAL);
	return err ?: EXPECT(ib_map_mr_sg(mr, b.sgl, 0, NULL, PAGE_SIZE) == -EINVAL) ?:
	       EXPECT(ib_map_mr_sg(mr, b.sgl, 1, &offset, PAGE_SIZE) == -EINVAL);
}

/* A region consists of exactly the bytes of its list, in their order. */
static int test_lists(void)
{
	struct page *pages = alloc_pages(GFP_KERNEL | __GFP_COMP, BLOCK_ORDER);
	u8 *shadow = kvmalloc(BLOCK, GFP_KERNEL);
	struct ib_mr *mr = NULL;
	int err;

	err = EXPECT(pages && shadow) ?:
	      TRY_PTR(mr = ib_alloc_mr(b.pd, IB_MR_TYPE_MEM_REG, LIST_PAGES)) ?:
	      refuse_lists(mr);
	fill(&a);
	for (int i = 0; i < ARRAY_SIZE(lists) && !err; i++) {
		err = map_list(mr, &lists[i], page_address(pages), shadow);
		if (err)
			pr_err("ferroce_consumer: list %d\n", i);
	}
	if (!IS_ERR_OR_NULL(mr))
		ib_dereg_mr(mr);
	kvfree(shadow);
	if (pages)
		__free_pages(pages, BLOCK_ORDER);
	return err;
}

/* WRITE and READ by the key for all memory, and an atomic operation, which it does not allow. */
static int use_global_rkey(struct pair *p, u64 addr, u8 *buf, u32 rkey)
{
	struct ib_sge sge = in_page(&a, 0, 8);
	struct ib_atomic_wr atomic = {
		.wr = {
			.opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
			.sg_list = &sge,
			.num_sge = 1,
		},
		.remote_addr = addr,
		.compare_add = 1,
		.rkey = rkey,
	};
	u32 len = 2 * PAGE_SIZE;

	fill(&a);
	return rdma(p->a, IB_WR_RDMA_WRITE, in_region(&a, 3, len), addr + 5, rkey,
		    IB_WC_SUCCESS) ?:
	       EXPECT(!buf[4] && buf[5] == pattern(3) && buf[4 + len] == pattern(2 + len)) ?:
	       EXPECT(!buf[5 + len]) ?:
	       rdma(p->a, IB_WR_RDMA_READ, in_page(&a, 0, 2), addr + 4, rkey, IB_WC_SUCCESS) ?:
	       EXPECT(!*byte(&a, 0) && *byte(&a, 1) == pattern(3)) ?:
	       TRY(ib_post_send(p->a, &atomic.wr, NULL)) ?: finish(&a, IB_WC_REM_ACCESS_ERR) ?:
	       EXPECT(!buf[0]);
}

/*
 * The key of a protection domain with IB_PD_UNSAFE_GLOBAL_RKEY gives the peers of its queue pairs
 * access to all memory. Queue pairs of other protection domains do not accept it, and no key for
 * local use either.
 */
static int test_global_rkey(void)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	u32 len = 3 * PAGE_SIZE;
	u8 *buf = kzalloc(len, GFP_KERNEL);
	struct ib_pd *pd = NULL;
	struct pair p = {};
	u64 addr = 0;
	int err;

	err = EXPECT(buf) ?: TRY_PTR(pd = ib_alloc_pd(b.dev, IB_PD_UNSAFE_GLOBAL_RKEY)) ?:
	      TRY_PTR(p.a = make_qp(&a, a.pd, &init)) ?:
	      TRY_PTR(p.b = make_qp(&b, pd, &init)) ?: connect_pair(&p);
	if (err)
		goto out;
	addr = ib_dma_map_single(b.dev, buf, len, DMA_BIDIRECTIONAL);
	err = EXPECT(!ib_dma_mapping_error(b.dev, addr)) ?:
	      use_global_rkey(&p, addr, buf, pd->unsafe_global_rkey);
	memset(buf, 0, len);
	err = err ?:
	      rdma(a.qp, IB_WR_RDMA_WRITE, in_page(&a, 1, 1), addr, pd->unsafe_global_rkey,
		   IB_WC_REM_ACCESS_ERR) ?: reconnect() ?:
	      rdma(a.qp, IB_WR_RDMA_WRITE, in_page(&a, 1, 1), addr, b.pd->local_dma_lkey,
		   IB_WC_REM_ACCESS_ERR) ?: reconnect() ?:
	      rdma(a.qp, IB_WR_RDMA_READ, in_page(&a, 1, 1), addr, b.pd->local_dma_lkey,
		   IB_WC_REM_ACCESS_ERR) ?: reconnect() ?:
	      EXPECT(!memchr_inv(buf, 0, len));
	ib_dma_unmap_single(b.dev, addr, len, DMA_BIDIRECTIONAL);
out:
	close_pair(&p);
	if (!IS_ERR_OR_NULL(pd))
		ib_dealloc_pd(pd);
	kfree(buf);
	return err;
}

int test_mr(void)
{
	return TRY(test_keys()) ?: TRY(test_pages()) ?: TRY(test_atomics()) ?:
	       TRY(test_refusals()) ?: TRY(test_lists()) ?: TRY(test_global_rkey()) ?:
	       TRY(test_invalidate());
}

int test_mr_brief(void)
{
	return transfer(IB_WR_RDMA_WRITE, 0, 1, IB_WC_SUCCESS) ?:
	       atomic(IB_WR_ATOMIC_FETCH_AND_ADD, 0, 1, 0, *(u64 *)byte(&b, 0));
}
