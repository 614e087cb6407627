// SPDX-License-Identifier: GPL-2.0
/*
 * What the tracepoints consist of: only macros of C can make it.
 */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
