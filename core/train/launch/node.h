/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks share a host: what is done once a node is done by the first of them. */
#ifndef SYI_NODE_H
#define SYI_NODE_H

#include "comm/comm.h"

/* The node of one rank; nodes are counted in the order of their first ranks. */
struct syi_node {
    int number, nodes; /* this one, of so many */
    int first;         /* its lowest rank */
    int place, ranks;  /* of this rank among those of the node */
    int largest;       /* ranks of the node that has most */
};

/* Called by all ranks. Nodes are told apart by the names of their hosts or, with SWITCHYARD_NODE_RANKS=N, every N ranks are
 * one: for containers, where names are all alike or all different. Of ranks that cannot talk (a plan's): one node. */
int syi_node_find(struct syi_comm *comm, struct syi_node *node, struct sy_error *err) SYI_MUST_CHECK;

#endif
