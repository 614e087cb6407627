// SPDX-License-Identifier: GPL-2.0
/*
 * ferroce_xdp NETDEV generic|native [frags]: attaches an XDP program that counts packets and passes
 * all of them; with "frags" one that takes packets in fragments.
 *
 * Says "attached". On SIGTERM it detaches the program, prints the count and ends. A program of a
 * few instructions needs no compiler for BPF.
 */
#include <err.h>
#include <signal.h>
#include <unistd.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sys/syscall.h>
#include "ferroce_util.h"

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr, const char *what)
{
	int fd = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	if (fd < 0)
		err(1, "%s", what);
	return fd;
}

/* An array of one 64-bit number. */
static int make_map(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY,
		.key_size = sizeof(uint32_t),
		.value_size = sizeof(uint64_t),
		.max_entries = 1,
	};

	return bpf(BPF_MAP_CREATE, &attr, "map");
}

static int load(int map, bool frags)
{
	const struct bpf_insn program[] = {
		/* The key, 0, is on the stack. */
		{ BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4 },
		{ BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map },
		{},
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem },
		{ BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 2, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_1, 0, 0, 1 },
		{ BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_0, BPF_REG_1, 0, BPF_ADD },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS },
		{ BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_XDP,
		.insns = (uintptr_t)program,
		.insn_cnt = ARRAY_LEN(program),
		.license = (uintptr_t)"GPL",
		.prog_flags = frags ? BPF_F_XDP_HAS_FRAGS : 0,
	};

	return bpf(BPF_PROG_LOAD, &attr, "program");
}

/* It is attached until the descriptor is closed. */
static int attach(int program, const char *netdev, uint32_t flags)
{
	union bpf_attr attr = {
		.link_create = {
			.prog_fd = program,
			.target_ifindex = if_nametoindex(netdev),
			.attach_type = BPF_XDP,
			.flags = flags,
		},
	};

	return bpf(BPF_LINK_CREATE, &attr, netdev);
}

static uint64_t count(int map)
{
	uint32_t key = 0;
	uint64_t value = 0;
	union bpf_attr attr = {
		.map_fd = map,
		.key = (uintptr_t)&key,
		.value = (uintptr_t)&value,
	};

	bpf(BPF_MAP_LOOKUP_ELEM, &attr, "count");
	return value;
}

int main(int argc, char **argv)
{
	bool frags = argc == 4 && !strcmp(argv[3], "frags");
	bool native = argc > 2 && !strcmp(argv[2], "native");
	bool generic = argc > 2 && !strcmp(argv[2], "generic");
	sigset_t set;
	int map, link, sig;

	if ((argc != 3 && !frags) || (!native && !generic))
		errx(2, "usage: %s NETDEV generic|native [frags]", argv[0]);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	map = make_map();
	link = attach(load(map, frags), argv[1], native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
	puts("attached");
	fflush(stdout);
	sigwait(&set, &sig);
	close(link);
	printf("%llu packets\n", (unsigned long long)count(map));
	return 0;
}
