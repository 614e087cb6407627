// SPDX-License-Identifier: GPL-2.0
/*
 * UC and UD over a link that loses and reorders packets. Messages arrive whole and at most once.
 * Those that are lost or out of order are counted, and there must be some.
 */
#include "ferroce_util.h"

#define MESSAGES 300
#define DEPTH 32
#define SLOT 8192
#define UC_LEN 5000

struct header {
	uint32_t sequence;
	uint32_t seed;
};

/* Messages that have arrived. One more ends the stream. */
static unsigned char seen[MESSAGES + 1];

/* The length of the shortest message. */
static uint32_t least;

static uint32_t length_of(uint32_t sequence, uint32_t most)
{
	return least + sequence * 997 % (most - least);
}

static void make_message(unsigned char *at, uint32_t sequence, uint32_t most)
{
	struct header header = { sequence, sequence * 2654435761u };

	memcpy(at, &header, sizeof(header));
	fill(at + sizeof(header), length_of(sequence, most) - sizeof(header), header.seed);
}

/* Checks one message that arrived against its own header; returns its number. */
static uint32_t check_message(const unsigned char *at, uint32_t len, uint32_t most)
{
	struct header header;

	CHECK(len >= sizeof(header));
	memcpy(&header, at, sizeof(header));
	CHECK(header.sequence <= MESSAGES);
	CHECK_EQ(header.seed, header.sequence * 2654435761u);
	CHECK_EQ(len, length_of(header.sequence, most));
	CHECK(filled(at + sizeof(header), len - sizeof(header), header.seed));
	CHECK(!seen[header.sequence]);
	seen[header.sequence] = 1;
	return header.sequence;
}

static struct end a, b;
static uint32_t delivered, last, reordered;

/* Takes the messages that have arrived; returns their number. */
static int reap(uint32_t most, uint32_t grh)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(b.cq, ARRAY_LEN(wc), wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		unsigned char *at = b.buf + wc[i].wr_id * SLOT;
		uint32_t sequence;

		CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
		sequence = check_message(at + grh, wc[i].byte_len - grh, most);
		CHECK_EQ(ntohl(wc[i].imm_data), sequence);
		/* Bytes of one message must not pass for those of the next one. */
		memset(at, 0xee, SLOT);
		reordered += delivered && sequence < last;
		last = sequence;
		delivered++;
		post_recv(&b, wc[i].wr_id, wc[i].wr_id * SLOT, SLOT);
	}
	return n;
}

static void run(enum ibv_qp_type type, const char *netem, bool some_lost, bool in_order)
{
	bool some_duplicates = strstr(netem, "duplicate");
	uint32_t grh = type == IBV_QPT_UD ? GRH_LEN : 0, most = grh ? 4096 : UC_LEN;
	uint32_t sent = 0;

	shell("tc -n n1 qdisc replace dev v1 root netem %s limit 100000", netem);
	memset(seen, 0, sizeof(seen));
	delivered = 0;
	reordered = 0;
	least = some_duplicates ? 1025 : sizeof(struct header);
	pair_open(&a, &b, type, DEPTH * SLOT);
	for (uint32_t i = 0; i < DEPTH; i++)
		post_recv(&b, i, i * SLOT, SLOT);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		make_message(a.buf, i, most);
		post_send(&a, &b, IBV_WR_SEND_WITH_IMM, i, 0, length_of(i, most),
			  IBV_SEND_SIGNALED);
		/* The buffer is free once the request has completed. */
		expect(&a, i, IBV_WC_SUCCESS);
		sent++;
		/* Only this slows the sender down, so that receives stay posted. */
		wait_begin();
		while (reap(most, grh) || (!some_lost && sent - delivered > DEPTH / 2))
			wait_more("messages of a link without loss");
	}
	wait_begin();
	while (!some_lost && delivered < sent) {
		reap(most, grh);
		wait_more("the last messages of a link without loss");
	}
	/*
	 * Packets that the link still holds are lost. A message after them arrives, if those before
	 * have left it a receive request.
	 */
	shell("tc -n n1 qdisc delete dev v1 root");
	while (reap(most, grh))
		;
	make_message(a.buf, MESSAGES, most);
	post_send(&a, &b, IBV_WR_SEND_WITH_IMM, MESSAGES, 0, length_of(MESSAGES, most),
		  IBV_SEND_SIGNALED);
	expect(&a, MESSAGES, IBV_WC_SUCCESS);
	wait_begin();
	while (!seen[MESSAGES]) {
		reap(most, grh);
		wait_more("a message without loss");
	}
	delivered--;
	printf("# %s: %u sent, %u delivered, %u lost, %u out of order\n", netem, sent, delivered,
	       sent - delivered, reordered);
	CHECK(delivered > sent / 10);
	CHECK(delivered <= sent);
	if (some_lost)
		CHECK(delivered < sent);
	else
		CHECK_EQ(delivered, sent);
	if (in_order)
		CHECK_EQ(reordered, 0);
	CHECK_EQ(end_state(&a), IBV_QPS_RTS);
	CHECK_EQ(end_state(&b), IBV_QPS_RTS);
	pair_close(&a, &b);
}

static void test_uc_clean(void)
{
	run(IBV_QPT_UC, "delay 0ms", false, true);
}

static void test_uc_loss(void)
{
	run(IBV_QPT_UC, "loss 5%", true, true);
}

/*
 * A message of one packet that the network duplicates is delivered twice, as in the specification;
 * one of several packets is not. And a message of one packet may overtake others.
 */
static void test_uc_all(void)
{
	run(IBV_QPT_UC, "delay 1ms loss 2% duplicate 2% reorder 5%", true, false);
}

static void test_uc_corrupt(void)
{
	run(IBV_QPT_UC, "corrupt 5%", true, true);
}

static void test_ud_clean(void)
{
	run(IBV_QPT_UD, "delay 0ms", false, true);
}

static void test_ud_loss(void)
{
	run(IBV_QPT_UD, "loss 5%", true, true);
}

/* A datagram has no number to distinguish it from its duplicate, and no order. */
static void test_ud_reorder(void)
{
	for (int i = 0; i < 20; i++) {
		run(IBV_QPT_UD, "delay 1ms loss 5% reorder 5%", true, false);
		if (reordered)
			return;
	}
	test_skip("the sender is too slow for netem to reorder datagrams");
}

static void test_ud_corrupt(void)
{
	run(IBV_QPT_UD, "corrupt 5%", true, true);
}

static const struct test tests[] = {
	{ "UC, no loss", test_uc_clean },
	{ "UC, loss", test_uc_loss },
	{ "UC, loss, duplicates, reordering", test_uc_all },
	{ "UC, corruption", test_uc_corrupt },
	{ "UD, no loss", test_ud_clean },
	{ "UD, loss", test_ud_loss },
	{ "UD, loss, reordering", test_ud_reorder },
	{ "UD, corruption", test_ud_corrupt },
};

int main(int argc, char **argv)
{
	/* Packets that are sent on two processors may overtake each other. */
	stay_on_cpu(0);
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
