/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that the ferroce test programs share: two devices in two network namespaces, queue
 * pairs with all that they need, and checks.
 *
 * A check that fails ends the test case, not the program. Waiting ends after a number of polls and
 * a minute, whichever is later: under emulation, no fixed time is long enough.
 */
#ifndef FERROCE_UTIL_H
#define FERROCE_UTIL_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define QKEY 0x11223344
/* The flow label of every address vector, and the UDP source port that follows from it. */
#define FLOW_LABEL 0x123
#define SOURCE_PORT 0xc123
#define GRH_LEN 40
#define ROCE_PORT 4791

#define FULL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/*
 * A device, opened: r1 in namespace n1 with 10.77.0.1 and fd77::1, r2 in n2 with 10.77.0.2 and
 * fd77::2.
 */
struct dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	int gid_index;
	union ibv_gid gid;
	int gid6_index;
	union ibv_gid gid6;
};

extern struct dev r1, r2;

/*
 * A queue pair, its completion queue and one memory region. The attributes are those that end_to()
 * sets.
 */
struct end {
	struct dev *dev;
	enum ibv_qp_type type;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	/* If it is set before end_create(), receives are posted here. The end does not own it. */
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	unsigned char *buf;
	size_t len;

	struct ibv_qp_cap cap;
	int cqe;
	int vector;
	bool v6;
	enum ibv_mtu mtu;
	/* The access that the queue pair and the region allow. */
	unsigned int access;
	unsigned int region;
	/* Operations of the extended post functions, 0 for a queue pair without them. */
	uint64_t ops;
	uint32_t psn;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t min_rnr_timer;
	uint8_t rd_atomic;
	/* enum ibv_rate */
	uint8_t rate;
};

struct test {
	const char *name;
	void (*run)(void);
};

/*
 * Makes the namespaces and the devices, calls set_up() if there is one, runs the tests whose name
 * has argv[1] in it, prints TAP and exits.
 */
void run_tests(int argc, char **argv, void (*set_up)(void), const struct test *tests, size_t n);

/* Opens r1 and r2 and waits until they can be used; run_tests() does it. */
void devs_open(void);
/* Opens one of them, by its number. */
void dev_open(struct dev *dev, int number);
/* Opens a device by its name; returns NULL if there is none, or it cannot be opened. */
struct ibv_context *open_device(const char *name);
/* The index of a GID of a net device, or of any if ifindex is 0; -1 if there is none. */
int find_gid(struct ibv_context *ctx, const union ibv_gid *gid, uint32_t ifindex);
/* Waits until the port is active and has both GIDs, and looks their indexes up. */
void dev_wait(struct dev *dev);

/* Reports the running test as skipped, unless it fails. */
void test_skip(const char *why);

#define CHECK(cond) check(!!(cond), #cond, __func__, __LINE__)
#define CHECK_EQ(got, wanted) \
	check_eq((long long)(got), (long long)(wanted), #got " == " #wanted, __func__, __LINE__)

void check(bool ok, const char *what, const char *func, int line);
void check_eq(long long got, long long wanted, const char *what, const char *func, int line);

/* Runs a shell command; the test fails if it does. */
void shell(const char *format, ...);
/*
 * Does the same, and notes the command that undoes it. undo_last() runs the note taken last, as
 * shell() does; those that are left when the case ends, or the process is ended, are run then.
 */
void shell_undo(const char *undo, const char *format, ...);
void undo_last(void);
void undo_all(void);
/* The undo of a queueing discipline of the net device of r1. */
#define QDISC_DEL "tc -n n1 qdisc del dev v1 root"
/* A command for both namespaces n$i and net devices v$i. */
#define BOTH(command) "for i in 1 2; do " command " || exit; done"
/* Runs a command in a signal handler. */
void shell_signal(const char *command);
/*
 * fork(). In the child, a check that fails ends the process, with status 1. The child is killed
 * when the case ends, or this process; the latter only until the child changes its user.
 */
pid_t child_fork(void);
/* Kills a child and waits for it, unless somebody has waited for it already. */
void child_kill(pid_t pid);
/* For child_fork() and run_tests(): keeps note of a child; ends what the case has left behind. */
void case_child(pid_t pid);
void case_end(void);
/* Returns whether the kernel is slow. */
bool is_debug_kernel(void);
/* Keeps the program, and its children, on a CPU from now on. */
void stay_on_cpu(int cpu);

/*
 * Yields the processor; fails after too many calls and too long a time since wait_begin().
 */
void wait_begin(void);
void wait_more(const char *what);
/* The same around a system call, and around a program that is started. */
void wait_more_verb(const char *what);
void wait_more_program(const char *what);

/* Makes the namespaces and the devices, until the program ends; run_tests() does it. */
void net_up(void);
/* Enters a network namespace; returns a descriptor of the one before, for leave_ns(). */
int enter_ns(const char *name);
void leave_ns(int before);
/* Has one CPU receive all packets in a namespace (RPS), so that they do not overtake each other. */
void receive_in_order(int number);

/* Fills an end with the attributes that most tests use. Change them before end_create(). */
void end_init(struct end *e, struct dev *dev, enum ibv_qp_type type, size_t len);
/* Creates the objects of an end. */
void end_create(struct end *e);
void end_close(struct end *e);
/* Takes the queue pair from RESET up to a state, with `peer` on the other side. */
void end_to(struct end *e, struct end *peer, enum ibv_qp_state state);
/* The same where it may fail half-way. */
bool end_try(struct end *e, struct end *peer, enum ibv_qp_state state);
/* Fills in the attributes of a change to a state, from the one before; returns their mask. */
int end_change(struct end *e, struct end *peer, enum ibv_qp_state state, struct ibv_qp_attr *attr);
void end_modify(struct end *e, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *e);
/* Waits until the queue pair is in a state. */
void end_await(struct end *e, enum ibv_qp_state state);
/* The address vector of `to` as seen from `from`. */
struct ibv_ah_attr end_path(struct end *from, struct end *to);

/* Creates two ends and takes both to RTS. */
void pair_create(struct end *a, struct end *b);
/* The same, on r1 and on r2, with the usual attributes. */
void pair_open(struct end *a, struct end *b, enum ibv_qp_type type, size_t len);
void pair_close(struct end *a, struct end *b);

/*
 * Fills in a request with one SGE, from `off` of the own buffer to `off` of the peer's. Immediate
 * data is the wr_id.
 */
void make_send(struct ibv_send_wr *wr, struct ibv_sge *sge, struct end *e, struct end *to,
	       enum ibv_wr_opcode op, uint64_t wr_id, size_t off, uint32_t len, unsigned int flags);
/* Fills in requests of one length for one doorbell. The wr_id is the index. */
void make_chain(struct ibv_send_wr *wrs, struct ibv_sge *sges, int n, struct end *e, struct end *to,
		enum ibv_wr_opcode op, uint32_t len, unsigned int flags);
void post_send(struct end *e, struct end *to, enum ibv_wr_opcode op, uint64_t wr_id, size_t off,
	       uint32_t len, unsigned int flags);
/*
 * Starts a request of the extended post functions, and posts it. The result is to be used in
 * between.
 */
struct ibv_qp_ex *ex_begin(struct end *e, uint64_t wr_id, unsigned int flags);
void ex_post(struct end *e);
void post_wr(struct end *e, struct ibv_send_wr *wr);
void post_recv(struct end *e, uint64_t wr_id, size_t off, uint32_t len);
/* Posts nothing, which lets the kernel look at the queues. */
void doorbell(struct end *e);

/* Waits for one completion. */
struct ibv_wc next_wc(struct ibv_cq *cq);
/* The same for one that must have this wr_id and status. */
struct ibv_wc expect(struct end *e, uint64_t wr_id, enum ibv_wc_status status);
/* Checks that there is no completion. */
void expect_none(struct end *e);
/* Waits for an asynchronous event and acknowledges it. */
void expect_event(struct end *e, enum ibv_event_type type);
/* Waits for each of these once, in any order, and checks that there is no other event. */
void expect_events(struct end *e, const enum ibv_event_type *types, int n);
bool have_event(struct end *e);

/*
 * Bytes that follow from a seed and a position, the latter counted from the start of the pattern.
 */
void fill(void *buf, size_t len, uint32_t seed);
bool filled(const void *buf, size_t len, uint32_t seed);
bool all_bytes(const void *buf, size_t len, unsigned char byte);

/* The next number of a sequence that `state` seeds. */
uint32_t rnd(uint64_t *state);

#endif
