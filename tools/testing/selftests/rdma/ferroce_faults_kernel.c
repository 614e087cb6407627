// SPDX-License-Identifier: GPL-2.0
/*
 * A consumer in the kernel (modules/consumer_main.c) while an allocation of the driver fails.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "ferroce_faults.h"

/* Returns the path of the module, which is beside this program. */
static const char *consumer(void)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	CHECK(n > 0);
	path[n] = 0;
	strcpy(strrchr(path, '/'), "/ferroce_consumer.ko");
	return path;
}

static int fd;

/* The module runs everything from its init function. */
static int try_load(void)
{
	return syscall(SYS_finit_module, fd, "brief=1", 0) ? errno : 0;
}

static void unload(void)
{
	CHECK_EQ(syscall(SYS_delete_module, "ferroce_consumer", 0), 0);
}

void test_consumer(void)
{
	fd = open(consumer(), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	inject(&(struct call){ "consumer", NULL, try_load, unload, .driver_only = true });
	close(fd);
}
