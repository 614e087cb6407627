// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a test case: children, and commands that undo changes, which a failed case leaves
 * behind. See ferroce_util.h.
 */
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_util.h"

static pid_t children[128];
/* Commands to run, the last one first. */
static char undos[8][256];
static int n_undos;

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

void shell_undo(const char *undo, const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	CHECK(n_undos < (int)ARRAY_LEN(undos));
	snprintf(undos[n_undos], sizeof(undos[0]), "%s", undo);
	/* Before the command, which may fail halfway. */
	n_undos++;
	shell("%s", command);
}

void undo_last(void)
{
	CHECK(n_undos > 0);
	shell("%s", undos[--n_undos]);
}

/* system() could wait for a lock that the interrupted code holds. */
void shell_signal(const char *command)
{
	pid_t child = fork();

	if (!child) {
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

void undo_all(void)
{
	while (n_undos > 0)
		shell_signal(undos[--n_undos]);
}

void case_end(void)
{
	for (size_t i = 0; i < ARRAY_LEN(children); i++) {
		child_kill(children[i]);
		children[i] = 0;
	}
	undo_all();
}
