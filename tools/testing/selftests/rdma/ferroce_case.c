// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a test case: the processes and the commands that a failed case leaves behind. See
 * ferroce_util.h.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_util.h"

static pid_t children[128];

/* Returns whether a process is a child that nobody has waited for. */
static bool is_child(pid_t pid)
{
	siginfo_t info;

	return pid && !waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT);
}

void case_child(pid_t pid)
{
	for (size_t i = 0; i < ARRAY_LEN(children); i++) {
		if (!is_child(children[i])) {
			children[i] = pid;
			return;
		}
	}
	CHECK(!"there is room for another child");
}

void child_kill(pid_t pid)
{
	if (!is_child(pid))
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void case_end(void)
{
	for (size_t i = 0; i < ARRAY_LEN(children); i++) {
		child_kill(children[i]);
		children[i] = 0;
	}
}
