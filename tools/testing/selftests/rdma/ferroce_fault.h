/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory on demand, and memory with page faults that the test resolves itself (userfaultfd), so
 * that the kernel waits.
 */
#ifndef FERROCE_FAULT_H
#define FERROCE_FAULT_H

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "ferroce_util.h"

#define PAGE 4096
#define ODP_ACCESS (FULL_ACCESS | IBV_ACCESS_ON_DEMAND)

static inline size_t resident_pages(const struct end *e)
{
	unsigned char resident;
	size_t count = 0;

	for (size_t at = 0; at < e->len; at += PAGE) {
		CHECK_EQ(mincore(e->buf + at, PAGE, &resident), 0);
		count += resident & 1;
	}
	return count;
}

/* Makes the buffer of an end a region on demand, with no page in memory. */
static inline void on_demand(struct end *e)
{
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	CHECK_EQ(madvise(e->buf, e->len, MADV_DONTNEED), 0);
	e->mr = ibv_reg_mr(e->dev->pd, e->buf, e->len, ODP_ACCESS);
	CHECK(e->mr);
	CHECK_EQ(resident_pages(e), 0);
}

/* Does what pair_open() does, with memory on demand. */
static inline void pair_open_odp(struct end *a, struct end *b, enum ibv_qp_type type, size_t len)
{
	pair_open(a, b, type, len);
	on_demand(a);
	on_demand(b);
}

/*
 * Opens a userfaultfd. The kernel's own faults are reported only if the opener is privileged; it
 * may drop its privileges afterwards.
 */
static inline int userfault_open(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	return fd;
}

/* From here on, pages of this memory appear only when the process calls bring(). */
static inline void userfault_add(int fd, void *at, size_t len)
{
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)at, .len = len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	CHECK_EQ(madvise(at, len, MADV_DONTNEED), 0);
	CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
}

/* Does the same with a new userfaultfd, and returns that. */
static inline int userfault(void *at, size_t len)
{
	int fd = userfault_open();

	userfault_add(fd, at, len);
	return fd;
}

/* Waits for a page fault; returns the address of the page. */
static inline uint64_t wanted(int fd)
{
	struct uffd_msg msg;

	CHECK_EQ(read(fd, &msg, sizeof(msg)), sizeof(msg));
	CHECK_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
	return msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
}

static inline void bring(int fd, uint64_t at)
{
	struct uffdio_zeropage zero = { .range = { .start = at, .len = PAGE } };

	CHECK_EQ(ioctl(fd, UFFDIO_ZEROPAGE, &zero), 0);
}

#endif
