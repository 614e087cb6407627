/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The attributes of the device, and the functions that show each of them in use or at its bound.
 */
#ifndef FERROCE_CAPS_H
#define FERROCE_CAPS_H

#include "ferroce_util.h"

extern struct ibv_device_attr_ex dev;
extern struct ibv_port_attr port;

void identity(void);
void show_guid(void);
void show_qp_wr(void);
void show_sge(void);
void show_sge_rd(void);
void show_cqe(void);
void show_srq_wr(void);
void show_srq_sge(void);
void show_mr_size(void);
void show_page_size(void);
void show_many(void);
void show_many_srqs(void);
void show_many_windows(void);
void show_pds(void);
void show_ahs(void);
void show_rd_atom(void);
void show_res_rd_atom(void);
void show_pkeys(void);
void show_ack_delay(void);
void show_ports(void);
void show_flags_ex(void);
void show_av_port(void);
void show_rnr(void);
void show_srq_resize(void);
void show_mtu(void);
void show_gids(void);
void show_speed(void);
void show_state(void);
void show_grh_required(void);

#endif
