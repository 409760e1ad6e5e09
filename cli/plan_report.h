/* SPDX-License-Identifier: Apache-2.0 */
/* What `plan` says of a run: counted once, printed as text or as JSON. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "optim/optim.h"
#include "train/engine/engine.h"

/* What a step's programs send over one kind of collective. */
struct plan_traffic {
    uint64_t calls, bytes; /* bytes that reach one rank from others */
};

/* A part of [optimizer]. */
struct plan_optimizer {
    uint64_t parameters, elements; /* that it updates */
};

struct plan_report {
    const struct syi_config *config; /* as planned: borrowed, as are the others */
    const struct syi_rank *rank;
    struct syi_engine *engine;
    int changed;                  /* 1: reproducible.* had to be changed for this mesh */
    int64_t t5x[2];               /* T5X's mesh; 0: not asked for */
    int two_data_axes;            /* T5X splits the batch over both of its axes */
    int tensors;                  /* 1: every tensor is printed */
    struct bench_machine machine; /* what this one can do, all ranks together; threads 0: not measured */
    const char *untimed;          /* why not, or NULL */
    double seconds;               /* that a step takes at its limits, op by op */
    uint64_t parameters;          /* elements of all */
    uint64_t active;              /* of these that a token meets, in the mean */
    uint64_t kind_bytes[SYI_CARRY + 1]; /* of a rank, by enum syi_kind */
    uint64_t ops;                       /* of a step */
    double flops, bytes;                /* of a step on one rank; bytes: operands read and written */
    uint64_t recomputed_ops;            /* of these, for memory.budget */
    double recomputed_flops;
    int weighed; /* 1: metrics.weights_every is set, whose program has in place of update */
    double weigh_flops, weigh_bytes;    /* so much more on one rank */
    uint64_t weigh_ops, weigh_received; /* and ops, and bytes from others */
    struct syi_chain *chains;           /* by the parts of [optimizer], as `optimizer` */
    struct plan_optimizer optimizer[SYI_CONFIG_PARTS];
    struct plan_traffic traffic[SY_OP_COUNT]; /* of a step, by op */
    struct plan_traffic all;
};

/* Counts, after checking that every rank's shards are of the same size. Whether or not it succeeds,
 * plan_report_free follows. */
int plan_report_count(struct plan_report *report, struct sy_error *err) SYI_MUST_CHECK;
void plan_report_free(struct plan_report *report); /* what it made, not what it borrows */

/* The part of the mesh that ranks [first, first + n) hold: they differ along the model axis only. */
struct plan_place {
    int first, n, data, expert;
    int64_t rows[2], experts[2]; /* first and one past the last: rows of a microbatch, experts (0, 0: none) */
};
int plan_places(const struct plan_report *report);
struct plan_place plan_place(const struct plan_report *report, int place);

int plan_print_text(const struct plan_report *report, struct sy_error *err) SYI_MUST_CHECK;
int plan_print_json(const struct plan_report *report, struct sy_error *err) SYI_MUST_CHECK;

#endif
