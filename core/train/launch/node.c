/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the nodes from a word of each rank. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/launch/node.h"

struct word {
    char text[65];
};

static int find_word(int rank, struct word *word, struct sy_error *err)
{
    const char *given = getenv("SWITCHYARD_NODE_RANKS");
    char host[256] = "", *end = NULL;
    struct syi_sha256 hash;
    memset(word, 0, sizeof *word);
    if (given && *given) {
        long n = strtol(given, &end, 10);
        if (*end || n < 1 || n > 1 << 20)
            return syi_error(err, SY_EINVAL, "SWITCHYARD_NODE_RANKS=%.40s: a number of ranks, 1 or more",
                             given);
        snprintf(word->text, sizeof word->text, "%ld", rank / n);
        return SY_OK;
    }
    gethostname(host, sizeof host - 1);
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, host, strlen(host));
    syi_sha256_hex(&hash, word->text);
    return SY_OK;
}

static int same(const struct word *a, const struct word *b)
{
    return !strcmp(a->text, b->text);
}

/* first: (ranks) of each rank the first one of its node. */
static void count(const int *first, int ranks, int rank, struct syi_node *node)
{
    *node = (struct syi_node){.first = first[rank]};
    for (int i = 0; i < ranks; i++) {
        node->number += i < first[rank] && first[i] == i;
        node->nodes += first[i] == i;
        node->place += i < rank && first[i] == first[rank];
        node->ranks += first[i] == first[rank];
    }
}

/* members: (ranks) zeros. */
static int find_largest(const int *first, int ranks, int *members)
{
    int largest = 0;
    for (int i = 0; i < ranks; i++)
        if (++members[first[i]] > largest) largest = members[first[i]];
    return largest;
}

int syi_node_find(struct syi_comm *comm, struct syi_node *node, struct sy_error *err)
{
    struct word mine;
    int n = comm->ranks, status = find_word(comm->rank, &mine, err);
    *node = (struct syi_node){.nodes = 1, .place = comm->rank, .ranks = n, .largest = n};
    if (status || n == 1 || !comm->table) return status;
    struct word *all = syi_alloc((size_t)n * sizeof *all, err);
    int *first = syi_alloc(2 * (size_t)n * sizeof *first, err);
    status = all && first ? syi_comm_gather(comm, &mine, sizeof mine, all, err) : SY_ENOMEM;
    for (int i = 0; !status && i < n; i++) {
        /* Ranks of a node mostly follow each other, or come round after as many as there are nodes. */
        first[i] = i && same(&all[i], &all[i - 1]) ? first[i - 1] : 0;
        while (!same(&all[first[i]], &all[i])) first[i]++;
    }
    if (!status) {
        count(first, n, comm->rank, node);
        node->largest = find_largest(first, n, first + n);
    }
    syi_free(first);
    syi_free(all);
    return status;
}
