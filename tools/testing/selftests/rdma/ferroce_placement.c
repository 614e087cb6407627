// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that poll memory: when the last bytes of a WRITE can be seen, so can all others.
 *
 * InfiniBand does not promise this order, but every adapter keeps it, and riostream, UCX and
 * ib_write_lat rely on it. Here a thread polls the last bytes and then checks those before them.
 */
#include <pthread.h>
#include <unistd.h>
#include "ferroce_util.h"

#define LEN 16384
#define ROUNDS 128

/* The next message: `len` times the byte `byte` at `at`. */
static struct {
	unsigned char *at;
	size_t len;
	/* Bytes that are polled at once, 1 or 8; the message ends at a multiple of that. */
	size_t unit;
	unsigned char byte;
} message;

/* Numbers of the message that the thread waits for, and of the last one it has seen. */
static unsigned int wanted, seen;
static bool ends;
static pthread_t watcher;
static bool watching;
/* Messages whose polled bytes came in parts, or before other bytes. */
static unsigned int torn, early;

static uint64_t poll_end(void)
{
	unsigned char *last = message.at + message.len - message.unit;

	if (message.unit == 1)
		return __atomic_load_n(last, __ATOMIC_ACQUIRE);
	return __atomic_load_n((uint64_t *)last, __ATOMIC_ACQUIRE);
}

static void *watch(void *unused)
{
	uint64_t before, now, found;

	for (;;) {
		while (__atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == seen) {
			if (__atomic_load_n(&ends, __ATOMIC_RELAXED))
				return NULL;
		}
		before = (unsigned char)(message.byte - 1);
		now = message.byte;
		if (message.unit == 8) {
			before *= 0x0101010101010101;
			now *= 0x0101010101010101;
		}
		while ((found = poll_end()) == before) {
			if (__atomic_load_n(&ends, __ATOMIC_RELAXED))
				return NULL;
		}
		torn += found != now;
		early += !all_bytes(message.at, message.len, message.byte);
		__atomic_store_n(&seen, wanted, __ATOMIC_RELEASE);
	}
}

static void stop_watching(void)
{
	if (!watching)
		return;
	__atomic_store_n(&ends, true, __ATOMIC_RELAXED);
	pthread_join(watcher, NULL);
	watching = false;
}

static void start_watching(void)
{
	/* Stop the thread of a test that failed. */
	stop_watching();
	torn = 0;
	early = 0;
	ends = false;
	seen = wanted;
	CHECK_EQ(pthread_create(&watcher, NULL, watch, NULL), 0);
	watching = true;
}

/* Sends one message, and waits until the thread has seen its end. */
static void deliver(struct end *a, struct end *b, size_t off, size_t len, size_t unit)
{
	message.at = b->buf + off;
	message.len = len;
	message.unit = unit;
	message.byte++;
	memset(b->buf, (unsigned char)(message.byte - 1), LEN);
	memset(a->buf, message.byte, LEN);
	__atomic_store_n(&wanted, wanted + 1, __ATOMIC_RELEASE);
	post_send(a, b, IBV_WR_RDMA_WRITE, wanted, off, len, IBV_SEND_SIGNALED);
	expect(a, wanted, IBV_WC_SUCCESS);
	wait_begin();
	while (__atomic_load_n(&seen, __ATOMIC_ACQUIRE) != wanted)
		wait_more("the thread that polls memory");
}

static void deliver_many(size_t len, size_t unit)
{
	struct end a, b;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return test_skip("two threads must run at the same time");
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	start_watching();
	/* Up to the end of a page, across it, and from there on. */
	for (size_t i = 0; i < ROUNDS; i++)
		deliver(&a, &b, 4096 - ROUNDS / 2 * unit + i * unit, len, unit);
	stop_watching();
	pair_close(&a, &b);
	if (torn || early)
		printf("# of %d messages %u torn, %u seen too early\n", ROUNDS, torn, early);
	CHECK_EQ(torn, 0);
	CHECK_EQ(early, 0);
}

static void test_word(void)
{
	deliver_many(8, 8);
}

static void test_short(void)
{
	deliver_many(72, 8);
}

static void test_packet(void)
{
	deliver_many(1000, 8);
}

static void test_odd(void)
{
	deliver_many(1001, 1);
}

static void test_packets(void)
{
	deliver_many(4096, 8);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "8 bytes, the last 8 polled", test_word },
		{ "72 bytes, the last 8 polled", test_short },
		{ "1000 bytes, the last 8 polled", test_packet },
		{ "1001 bytes, the last polled", test_odd },
		{ "4 packets, the last 8 bytes polled", test_packets },
	};

	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
