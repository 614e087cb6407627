/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of ferroce_faults.
 */
#ifndef FERROCE_FAULTS_H
#define FERROCE_FAULTS_H

#include "ferroce_inject.h"

/* Commands of RDMA netlink. */
void test_links(void);
void test_counters(void);

/* Packets, with faults in the thread that posts them. */
void test_posted(void);
void test_posted_datagrams(void);
void test_posted_frames(void);

/* Packets, with faults in any context. */
void test_traffic_on_demand(void);
void test_traffic_window(void);
void test_traffic_group(void);
void test_traffic_realloc(void);

/* A consumer in the kernel. */
void test_consumer(void);

#endif
