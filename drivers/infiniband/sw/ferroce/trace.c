// SPDX-License-Identifier: GPL-2.0
/*
 * Defines the tracepoints, which only C macros can do.
 */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
